"""One drawn cluster with its extender: the API server's store, the network in between, the clock, and what was heard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from random import Random

from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.host_usage import HostUsage
from extender.state.namespaces import NamespaceLabels, NamespaceSink
from extender.state.placement_change import apply_placement
from tests.brute_force.clusters import draw_nodes, draw_placement
from tests.simulation.api import Network
from tests.simulation.process import SimulatedExtender
from tests.support.ruled_clusters import NAMESPACES
from vrampack.kube.objects import NamespaceObject, NodeObject, ObjectMeta
from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import NODE, POD, Object

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
MOST_NODES = 9


class WrongAnswerError(Exception):
    """The extender and the judge disagree, or a promise is broken."""


class HeardNodes(HostUsage):
    """Notes which version of each node the extender has heard."""

    def __init__(self, *, is_kept: bool) -> None:
        super().__init__(is_kept=is_kept)
        self.versions: dict[str, str] = {}

    def update_node(self, node: NodeObject) -> None:
        super().update_node(node)
        self.versions[node.metadata.name] = node.metadata.resource_version

    def remove_node(self, name: str) -> None:
        super().remove_node(name)
        self.versions.pop(name, None)


class BruteForceWorld:
    """Drawn from `seed`; see `tests.brute_force.run`."""

    def __init__(self, seed: int, metrics: ExtenderMetrics) -> None:
        self.random = random = Random(seed)
        self.seconds = 0.0
        self.throttled_until = 0.0
        self.chosen = ""
        self.trace: list[str] = []
        self.on_ready: list[Callable[[], None]] = []
        """Called whenever the extender has done all that it can do."""
        self._uids = 0
        self.versions: dict[tuple[str, str], Object] = {}
        """Every state of every pod and node, by uid and resourceVersion."""
        self._metrics = metrics
        self.store = ObjectStore(now=self._now, new_uid=self._new_uid)
        self.store.subscribe(self._note_change)
        self.network = Network()
        for node in draw_nodes(random, random.randint(1, MOST_NODES)):
            self.store.restore(NODE, "", node)
        self.namespaces: dict[str, Object] = {name: {"owner": random.choice(("x", "y"))} for name in NAMESPACES}
        self.rules, given = draw_placement(random)
        decide = random.choices(("prioritize", "filter", "auto"), (8, 1, 1))[0]
        self.settings = ExtenderConfiguration.model_validate(
            {"apiVersion": "vrampack.dev/v1", "kind": "ExtenderConfiguration", "decide": decide, **given}
        )
        self.placement = self.settings.build_placement()
        """That of the drafted rules."""
        self.drafted_rules: Object = self.rules
        """Those in force or, during a reload, the next ones."""
        self.hosts = HeardNodes(is_kept=self.settings.select_policies().reads_hosts)
        self.process = SimulatedExtender(
            "e0",
            store=self.store,
            network=self.network,
            metrics=metrics,
            settings=self.settings,
            clock=lambda: self.seconds,
            is_shuffled=False,
            hosts=self.hosts,
        )
        self.namespace_sinks: list[NamespaceSink] = []
        """That of the settings in force and, during a reload, that of the next ones."""

    def start(self) -> None:
        """The extender lists everything."""
        self.answer_all()
        if keys := self.placement.list_namespace_label_keys():
            labels = self.list_namespaces(keys)
            self.process.loop.create_task(apply_placement(self.process.ledger, self.placement, labels))
            self.run_ready()

    def close(self) -> None:
        self.process.loop.kill()

    def list_pods(self) -> list[Object]:
        return list(self.store._objects["pods"].values())

    def list_node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.store._objects["nodes"].values()]

    def choose_pod(self, fits: Callable[[Object], bool]) -> Object | None:
        pods = [pod for pod in self.list_pods() if not is_finished(pod) and fits(pod)]
        return self.random.choice(pods) if pods else None

    def find_pod(self, uid: str) -> Object | None:
        return next((pod for pod in self.list_pods() if pod["metadata"]["uid"] == uid), None)

    def list_live_pods(self, node: str) -> list[Object]:
        return [pod for pod in self.list_pods() if pod["spec"].get("nodeName") == node and not is_finished(pod)]

    def patch_pod(self, pod: Object, patch: Object, *, is_status: bool = False) -> str:
        self.store.patch(POD, *get_address(pod), patch, apply_patch=apply_merge_patch, is_status=is_status)
        return f"{get_name(pod)} {json.dumps(patch)}"

    def list_namespaces(self, keys: Iterable[str]) -> NamespaceLabels:
        """A first list of all namespaces, as `NamespaceWatcher` makes it when some selector needs their labels."""
        sink = NamespaceSink(NamespaceLabels(list(keys)), self.process.ledger, self._metrics)
        self.namespace_sinks.append(sink)
        sink.on_list_started("start")
        sink.on_page([build_namespace(name, labels) for name, labels in self.namespaces.items()])
        sink.on_list_finished()
        return sink.labels

    def pass_time(self, seconds: float) -> None:
        while seconds > 0:
            self.seconds += min(seconds, 2.0)
            seconds -= 2.0
            self.run_ready()

    def run_ready(self) -> None:
        self.process.loop.run_ready()
        if crash := self.process.crashed():
            raise WrongAnswerError(f"the extender ended: {crash}")
        for call_back in self.on_ready:
            call_back()

    def send_bookmarks(self) -> None:
        for stream in self.network.streams:
            if stream.is_open and not stream.feed.pending():
                stream.send("BOOKMARK", {"metadata": {"resourceVersion": str(self.store.version)}})
        self.run_ready()

    def deliver_all(self) -> None:
        for stream in self.network.streams:
            while stream.is_open and stream.feed.pending():
                stream.send_change(stream.feed.take(0))
        self.run_ready()

    def answer_all(self) -> None:
        """Until no call is waiting."""
        for _ in range(100):
            while self.network.late:
                self.network.late.pop().execute()
            for call in tuple(self.network.calls):
                call.answer()
            self.deliver_all()
            if not self.network.calls and not any(stream.feed.pending() for stream in self.network.streams):
                return
        raise WrongAnswerError("calls without end")

    def _note_change(self) -> None:
        for kind in (POD, NODE):
            for change in self.store.read_changes_since(self.store.version - 1, kind, None):
                metadata = change.item["metadata"]
                uid = metadata["uid"] if kind is POD else f"node {metadata['name']}"
                self.versions[uid, metadata["resourceVersion"]] = change.item

    def _now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.seconds)

    def _new_uid(self) -> str:
        self._uids += 1
        return f"u{self._uids}"


def get_name(item: Object) -> str:
    return str(item["metadata"]["name"])


def get_address(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def is_finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def read_units(pod: Object) -> int:
    """All that it asks."""
    return sum(int(each["resources"]["limits"]["aliyun.com/gpu-mem"]) for each in pod["spec"]["containers"])


def build_namespace(name: str, labels: Object) -> NamespaceObject:
    return NamespaceObject(ObjectMeta(name=name, labels=dict(labels)))
