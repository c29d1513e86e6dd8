"""The output of `inspect` and `explain`, computed only from the trimmed objects of the snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from extender.settings import ExtenderConfiguration
from vrampack.cli.explain.cluster import count_listed_cluster
from vrampack.cli.explain.explanations import explain_pending_pod
from vrampack.cli.explain.main import decode_explained_pod
from vrampack.cli.explain.text import render
from vrampack.cli.inspect.cluster import Resource, inspect_cluster
from vrampack.cli.inspect.schema import format_json
from vrampack.cli.inspect.table_views import format_wide
from vrampack.cli.support_bundle.bundle_file import BundledFile, PartContent
from vrampack.simulator.resource_kinds import Object

MAX_EXPLAINED = 20


@dataclass(frozen=True, slots=True)
class TrimmedLists:
    """A `ListReader` of objects in memory."""

    nodes: Sequence[Object]
    pods: Sequence[Object]

    def read_pages(self, resource: Resource) -> Iterable[bytes]:
        yield msgspec.json.encode(
            {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": getattr(self, resource)}
        )


def inspect_objects(lists: TrimmedLists) -> PartContent:
    """`vrampack inspect`, as a table and as JSON."""
    cluster = inspect_cluster(lists)
    texts = {"inspect.txt": format_wide(cluster), "inspect.json": format_json(cluster)}
    return PartContent(tuple(BundledFile(name, text.encode()) for name, text in texts.items()))


def explain_waiting_pods(
    lists: TrimmedLists, namespace_labels: dict[str, dict[str, str]], settings: ExtenderConfiguration
) -> PartContent:
    """`vrampack explain` of the pods that wait, the oldest first."""
    raw_pods = [msgspec.Raw(msgspec.json.encode(pod)) for pod in lists.pods]
    raw_nodes = (msgspec.Raw(msgspec.json.encode(node)) for node in lists.nodes)
    cluster = count_listed_cluster(raw_nodes, raw_pods, settings)
    settled = settings.settle_whole_cards(cluster.unpaid_use)
    files, waiting = list[BundledFile](), 0
    keys = settled.build_placement().list_namespace_label_keys()
    for pod, raw in sorted(zip(lists.pods, raw_pods, strict=True), key=lambda pair: _get_age(pair[0])):
        if (pod.get("spec") or {}).get("nodeName"):
            continue
        labels = namespace_labels.get(pod["metadata"].get("namespace", ""), {})
        subject = decode_explained_pod(
            bytes(raw), settled, tuple(sorted((key, labels[key]) for key in keys & labels.keys()))
        )
        if not subject.needs_cluster or subject.pod.request is None:
            continue
        waiting += 1
        if waiting <= MAX_EXPLAINED:
            text = render(explain_pending_pod(subject, settings, subject.pod.request, cluster), max_rows=None)
            files.append(BundledFile(f"explain/{subject.pod.namespace}.{subject.pod.name}.txt", text.encode()))
    notes = (f"{waiting - MAX_EXPLAINED} more waiting pods are not explained",) if waiting > MAX_EXPLAINED else ()
    return PartContent(tuple(files), notes)


def _get_age(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]
