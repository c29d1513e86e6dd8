"""A snapshot, sorted by what a replay does with each object."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from vrampack.cards import well_known
from vrampack.cards.payment import find_unpaid_use
from vrampack.cards.pod import Pod
from vrampack.cards.well_known import RECORD_ANNOTATIONS
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.examined_objects import ExaminedPod
from vrampack.kube.objects import to_pod
from vrampack.simulator.object_files import ObjectFileError
from vrampack.simulator.resource_kinds import Object

MAX_TIME_DIGITS = 20
"""Nanoseconds since 1970 have 19."""
_POD = msgspec.json.Decoder(ExaminedPod)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The objects of a snapshot, pods in the order of their creation."""

    nodes: tuple[Object, ...]
    bound: tuple[Object, ...]
    """Pods that hold cards."""
    waiting: tuple[Object, ...]
    """Pods that ask for cards and have no node, without gated ones and those that are being deleted."""
    others: tuple[Object, ...]
    """Bound pods without cards, which take CPU and memory of their nodes."""
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels by name."""
    unpaid_use: str = ""
    """Why whole cards need not be paid for, if the settings leave it open."""

    def replace_nodes(self, nodes: tuple[Object, ...]) -> ClusterSnapshot:
        """The same pods with other nodes. Pods without cards disappear with their node."""
        names = {node["metadata"]["name"] for node in nodes}
        return replace(self, nodes=nodes, others=tuple(pod for pod in self.others if pod["spec"]["nodeName"] in names))

    def displace_pods(self, changed_nodes: Collection[str]) -> ClusterSnapshot:
        """Make pods with cards on these or on missing nodes wait, before those that wait already."""
        staying = {node["metadata"]["name"] for node in self.nodes} - set(changed_nodes)
        displaced = [unbind_pod(pod) for pod in self.bound if pod["spec"]["nodeName"] not in staying]
        bound = tuple(pod for pod in self.bound if pod["spec"]["nodeName"] in staying)
        return replace(self, bound=bound, waiting=(*displaced, *self.waiting))


def read_cluster_snapshot(objects: Iterable[Object], resource: str = well_known.MEMORY_RESOURCE) -> ClusterSnapshot:
    """Sort the objects of a file. Raises `ObjectFileError` for an object that no API server would have written."""
    nodes, bound, waiting, others = list[Object](), list[Object](), list[Object](), list[Object]()
    holding = list[Pod]()
    namespaces: dict[str, Mapping[str, str]] = {}
    for item in objects:
        if item["kind"] == "Node":
            nodes.append(item)
        elif item["kind"] == "Namespace":
            namespaces[item["metadata"]["name"]] = item["metadata"].get("labels") or {}
        else:
            pod = complete_pod(item)
            read = decode_pod(pod, resource)
            if read.is_finished:
                continue
            if read.node_name:
                (bound if read.can_hold_memory else others).append(pod)
                holding.append(read)
            elif read.is_waiting and not read.is_placeholder:
                waiting.append(pod)
    return ClusterSnapshot(
        tuple(nodes),
        tuple(sorted(bound, key=get_arrival_order)),
        tuple(sorted(waiting, key=get_arrival_order)),
        tuple(others),
        namespaces,
        find_unpaid_use(holding),
    )


def get_arrival_order(pod: Object) -> tuple[str, int, str, str, str]:
    """A sort key: by creation; within a second by the more precise time of the record, or by the start; then by name."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    assumed = (metadata.get("annotations") or {}).get(well_known.GPUSHARE_ASSUME_TIME) or ""
    return (
        metadata.get("creationTimestamp") or "",
        int(assumed) if len(assumed) <= MAX_TIME_DIGITS and assumed.isascii() and assumed.isdecimal() else 0,
        status.get("startTime") or "",
        metadata["namespace"],
        metadata["name"],
    )


def unbind_pod(pod: Object) -> Object:
    """The pod as it was before it was bound."""
    metadata = pod["metadata"]
    annotations = {
        key: text for key, text in (metadata.get("annotations") or {}).items() if key not in RECORD_ANNOTATIONS
    }
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def complete_pod(pod: Object) -> Object:
    """The pod with the fields that an API server would have set: namespace, uid, spec."""
    metadata = pod["metadata"]
    namespace = metadata.get("namespace") or "default"
    uid = metadata.get("uid") or f"{namespace}/{metadata['name']}"
    return {**pod, "metadata": {**metadata, "namespace": namespace, "uid": uid}, "spec": pod.get("spec") or {}}


def decode_pod(pod: Object, resource: str) -> Pod:
    """The pod as the ledger reads it. Raises `ObjectFileError`."""
    return to_pod(decode_pod_object(pod), resource=resource)


def decode_pod_object(pod: Object) -> ExaminedPod:
    """Decode a pod. Raises `ObjectFileError` naming it."""
    try:
        return _POD.decode(msgspec.json.encode(pod))
    except UNDECODABLE as error:
        name = f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"
        raise ObjectFileError(f"pod {name} cannot be read: {error}; leave it out of the file") from error
