"""Collects the parts of a bundle, one after another. A part that fails becomes a line in the manifest, and the rest goes on.

    own pods --> configuration --> logs, metrics, access
    admission, events
    nodes and pods --> snapshot --> inspect, explain

Earlier parts have the first claim on the bundle's size limit, so the largest come last.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from extender.settings import ExtenderConfiguration, load_settings
from vrampack.cli.snapshot import build_scope, format_snapshot
from vrampack.cli.support_bundle.access_needs import ACCESS_NEEDS, list_attributes
from vrampack.cli.support_bundle.admission_objects import ADMISSION_KINDS, AdmissionObject, keep_admission_objects
from vrampack.cli.support_bundle.bundle_file import (
    BundledFile,
    PartContent,
    SupportBundle,
    encode_json_file,
    encode_json_lines,
)
from vrampack.cli.support_bundle.bundle_reader import BundleReader
from vrampack.cli.support_bundle.cluster_views import TrimmedLists, explain_waiting_pods, inspect_objects
from vrampack.cli.support_bundle.kept_objects import (
    LEFT_OUT,
    BundledEvent,
    OwnPod,
    keep_event,
    keep_node,
    keep_own_pod,
    keep_scheduler_conditions,
    keep_workload,
    select_readable,
)
from vrampack.cli.support_bundle.own_configuration import read_own_configuration
from vrampack.cli.support_bundle.own_pods import choose_pods, collect_logs, collect_metrics
from vrampack.cli.version import VERSION
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.simulator.replay.trimming import ClusterTrimmer, SnapshotScope, TrimmedCluster
from vrampack.simulator.resource_kinds import Object

MAX_EVENTS = 5000
WORKLOADS = {"deployments": "Deployment", "daemonsets": "DaemonSet"}


@dataclass(slots=True)
class BundleCollector:
    """Collects the parts, and keeps what later parts need from earlier ones."""

    reader: BundleReader
    bundle: SupportBundle
    settings: ExtenderConfiguration | None
    """The configuration of `--config`; else the one that an extender of the cluster mounts."""
    node_names: Collection[str] = ()
    own_pods: list[OwnPod] = field(default_factory=list)
    raw_nodes: list[Object] = field(default_factory=list)
    has_read_pods: bool = False
    scheduler_conditions: dict[str, list[Mapping[str, str]]] = field(default_factory=dict)
    """Why the scheduler did not place a pod, by the pod's uid and name."""
    trimmed: TrimmedCluster = field(default_factory=lambda: TrimmedCluster([], []))

    async def collect_all(self) -> None:
        """Every part."""
        parts: dict[str, Callable[[], Awaitable[PartContent]]] = {
            "versions": self._collect_versions,
            "own pods": self._collect_own_pods,
            "workloads": self._collect_workloads,
            "configuration": self._collect_configuration,
            "admission": self._collect_admission,
            "access": self._collect_access,
            "logs": self._collect_logs,
            "metrics": self._collect_metrics,
            "events": self._collect_events,
            "nodes": self._collect_nodes,
            "snapshot": self._collect_snapshot,
            "inspect": self._collect_inspection,
            "explain": self._collect_explanations,
        }
        for name, collect in parts.items():
            try:
                self.bundle.add_part(name, await collect())
            except (RefusedError, NoAnswerError) as error:
                self.bundle.add_failed_part(name, str(error))
            except Exception as error:  # noqa: BLE001 - the top of a part: a fault in one must not lose the others
                # Only the type: the text of an unforeseen error may quote anything.
                self.bundle.add_failed_part(name, f"{type(error).__name__} while it was collected")

    async def _collect_versions(self) -> PartContent:
        server = await self.reader.read_version()
        versions = {"vrampack": VERSION, "apiServer": server.git_version, "platform": server.platform}
        return PartContent((encode_json_file("versions.json", versions),))

    async def _collect_own_pods(self) -> PartContent:
        notes = list[str]()
        self.own_pods = await self.reader.list_own("pods", partial(select_readable, keep=keep_own_pod, notes=notes))
        if not self.own_pods:
            notes.append(f"namespace {self.reader.namespace} has no pods; --namespace names another")
        return PartContent((encode_json_lines("own-pods.jsonl", self.own_pods),), tuple(notes))

    async def _collect_workloads(self) -> PartContent:
        notes, kept = list[str](), list[object]()
        for resource, kind in WORKLOADS.items():
            keep = partial(select_readable, keep=partial(keep_workload, kind=kind), notes=notes)
            kept += await self.reader.list_own(resource, keep, group_path="/apis/apps/v1")
        return PartContent((encode_json_lines("workloads.jsonl", kept),), tuple(notes))

    async def _collect_configuration(self) -> PartContent:
        volumes = [volume for pod in self.own_pods for volume in pod.spec.volumes or ()]
        names = sorted({each.config_map.name for each in volumes if each.config_map and each.config_map.name})
        notes, read = list[str](), list[tuple[str, Mapping[str, str]]]()
        for name in names:
            try:
                read.append((name, await self.reader.read_config_map(name)))
            except (RefusedError, NoAnswerError) as error:
                notes.append(f"{name} is left out: {error}")
        found = read_own_configuration(read)
        self.settings = self.settings or found.settings
        if self.settings is None:
            notes.append("no ExtenderConfiguration is mounted: the parts below use the defaults")
        return PartContent(tuple(found.files), (*notes, *found.notes))

    async def _collect_admission(self) -> PartContent:
        notes, kept = list[str](), list[AdmissionObject]()
        for kind in ADMISSION_KINDS:
            try:
                kept += await self.reader.list_newest_version(
                    "admissionregistration.k8s.io",
                    kind.versions,
                    kind.plural,
                    partial(keep_admission_objects, resource=kind.plural),
                )
            except (RefusedError, NoAnswerError) as error:
                notes.append(f"no {kind.plural}: {error}")
        return PartContent((encode_json_lines("admission.jsonl", kept),), tuple(notes))

    async def _collect_access(self) -> PartContent:
        namespace, rows = self.reader.namespace, list[dict[str, object]]()
        for account in ACCESS_NEEDS:
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
            for attributes in list_attributes(account):
                user = f"system:serviceaccount:{namespace}:{account}"
                is_allowed = await self.reader.api.review_access(user, groups, attributes=attributes)
                rows.append({"account": account, **attributes, "allowed": is_allowed})
        denied = [row for row in rows if not row["allowed"]]
        notes = [f"{row['account']} may not {row['verb']} {row['resource']}" for row in denied]
        return PartContent((encode_json_lines("access.jsonl", rows),), tuple(notes))

    async def _collect_logs(self) -> PartContent:
        chosen, notes = choose_pods(self.own_pods, self.node_names)
        content = await collect_logs(self.reader, chosen)
        return PartContent(content.files, (*notes, *content.notes))

    async def _collect_metrics(self) -> PartContent:
        chosen, notes = choose_pods(self.own_pods, self.node_names)
        content = await collect_metrics(self.reader, chosen)
        return PartContent(content.files, (*notes, *content.notes))

    async def _collect_events(self) -> PartContent:
        notes = list[str]()

        def keep_own_events(items: list[Object]) -> list[BundledEvent]:
            return [each for each in select_readable(items, keep_event, notes) if self._is_about_us(each)]

        ours = await self.reader.list_path("/api/v1/events", "events", keep_own_events)
        newest = sorted(ours, key=lambda each: each.last_time)[-MAX_EVENTS:]
        if len(ours) > len(newest):
            notes.append(f"{len(ours) - len(newest)} older events are left out")
        return PartContent((encode_json_lines("events.jsonl", newest),), tuple(notes))

    def _is_about_us(self, event: BundledEvent) -> bool:
        """Whether it is of our namespace, has a message that may stay, or is about a node."""
        subject = event.involved_object
        is_readable = bool(event.message) and event.message != LEFT_OUT
        return is_readable or subject.namespace == self.reader.namespace or subject.kind == "Node"

    async def _collect_nodes(self) -> PartContent:
        notes = list[str]()
        self.raw_nodes = await self._list_nodes()
        nodes = select_readable(self.raw_nodes, keep_node, notes)
        return PartContent((encode_json_lines("nodes.jsonl", nodes),), tuple(notes))

    async def _collect_snapshot(self) -> PartContent:
        self.raw_nodes = self.raw_nodes or await self._list_nodes()
        scope, notes = self._build_scope(), list[str]()
        trimmer = ClusterTrimmer(scope)
        for node in self.raw_nodes:
            trimmer.add_node(node)
        async for pods in self.reader.read_list("/api/v1/pods", "pods"):
            for pod in pods:
                trimmer.add_pod(pod)
                if conditions := keep_scheduler_conditions(pod):
                    self.scheduler_conditions[_get_uid(pod)] = conditions
        self.has_read_pods = True
        if scope.namespace_label_keys:
            try:
                async for namespaces in self.reader.read_list("/api/v1/namespaces", "namespaces"):
                    for namespace in namespaces:
                        trimmer.add_namespace(namespace)
            except (RefusedError, NoAnswerError) as error:
                notes.append(f"labels of namespaces are missing: {error}")
        self.trimmed = trimmer.build_cluster()
        text = format_snapshot(self.trimmed.objects).encode()
        return PartContent((BundledFile("snapshot.json", text),), (*notes, *self.trimmed.notes))

    async def _list_nodes(self) -> list[Object]:
        return [node async for nodes in self.reader.read_list("/api/v1/nodes", "nodes") for node in nodes]

    def _build_scope(self) -> SnapshotScope:
        settings = self._get_settings()
        return build_scope(settings, [settings])

    def _get_settings(self) -> ExtenderConfiguration:
        return self.settings or load_settings(None)

    async def _collect_inspection(self) -> PartContent:
        return inspect_objects(self._build_lists())

    async def _collect_explanations(self) -> PartContent:
        namespaces = {
            each["metadata"]["name"]: each["metadata"].get("labels") or {}
            for each in self.trimmed.objects
            if each["kind"] == "Namespace"
        }
        return explain_waiting_pods(self._build_lists(), namespaces, self._get_settings())

    def _build_lists(self) -> TrimmedLists:
        if not self.has_read_pods:
            raise NoAnswerError("nodes and pods were not read: see the part snapshot")
        said = self.scheduler_conditions
        nodes = [each for each in self.trimmed.objects if each["kind"] == "Node"]
        pods = [
            {**each, "status": {**each.get("status", {}), "conditions": said.get(_get_uid(each), [])}}
            for each in self.trimmed.objects
            if each["kind"] == "Pod"
        ]
        return TrimmedLists(nodes, pods)


def _get_uid(pod: Object) -> str:
    return json.dumps([(pod.get("metadata") or {}).get(key) for key in ("namespace", "name", "uid")])
