"""Trims a cluster to a snapshot: the nodes and pods that placement reads, and of these the fields in `kept_fields.py`.

Of labels and annotations the keys stay that placement reads, and of a container's environment admission's one entry, which is
a fixed text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from vrampack.cards import well_known
from vrampack.kube.objects import FINISHED_PHASES, EnvVar, build_admission_entry
from vrampack.simulator.replay.hosts import describe_unfollowed
from vrampack.simulator.replay.kept_fields import (
    KeptContainer,
    KeptFields,
    KeptNamespace,
    KeptNode,
    KeptPod,
    Texts,
)
from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.scheduling.filters import find_unchecked_field

NODE_ANNOTATIONS = frozenset((well_known.NODE_CARDS, well_known.NODE_OBSERVED, well_known.CORDONED_CARDS))
POD_ANNOTATIONS = well_known.RECORD_ANNOTATIONS | {well_known.POLICY, well_known.CARD_MODEL, well_known.CARD_UUID}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
POD_LABELS = frozenset((well_known.COUNT_LABEL, well_known.PLACEMENT_LABEL))

_AnyKept = TypeVar("_AnyKept", KeptNode, KeptPod, KeptNamespace)


@dataclass(frozen=True, slots=True)
class SnapshotScope:
    """What placement reads under a configuration."""

    resource: str = well_known.MEMORY_RESOURCE
    count_resource: str = well_known.COUNT_RESOURCE
    label_keys: Collection[str] = ()
    """Of pods."""
    namespace_label_keys: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class TrimmedCluster:
    """The objects of a snapshot."""

    objects: list[Object]
    notes: list[str]
    """Notes about what could not be read, and about fields that are dropped although a scheduler reads them."""


class ClusterTrimmer:
    """Trims each object when it is listed, so that no whole list is ever in memory: nodes first, as pods depend on them.

    It keeps nodes with cards, the pods that ask for cards or run on these nodes, and the namespaces whose labels are read.
    """

    def __init__(self, scope: SnapshotScope) -> None:
        self._scope = scope
        self._nodes: dict[str, KeptNode] = {}
        self._pods: list[Object] = []
        self._namespaces: list[KeptNamespace] = []
        self._unfollowed = Counter[str]()
        self._notes: dict[str, list[str]] = {"nodes": [], "pods": [], "namespaces": []}

    def add_node(self, item: Object) -> None:
        node = _convert(item, KeptNode, self._notes["nodes"])
        if node is not None and _has_cards(node, self._scope):
            self._nodes[node.metadata.name] = node

    def start_pods(self) -> None:
        """Forget the pods: their list begins again."""
        self._pods.clear()
        self._unfollowed.clear()
        self._notes["pods"].clear()

    def add_pod(self, item: Object) -> None:
        pod = _convert(item, KeptPod, self._notes["pods"])
        if pod is not None and _matters(pod, self._nodes, self._scope):
            self._pods.append(_build_object("Pod", _trim_pod(pod, self._scope)))
            self._unfollowed[find_unchecked_field(item)] += _asks(pod, self._scope)

    def add_namespace(self, item: Object) -> None:
        namespace = _convert(item, KeptNamespace, self._notes["namespaces"])
        if namespace is not None:
            self._namespaces.append(_trim_metadata(namespace, self._scope.namespace_label_keys, ()))

    def build_cluster(self) -> TrimmedCluster:
        keys = {key for pod in self._pods for key in list_selected_keys(pod["spec"])}
        objects = [_build_object("Node", _trim_metadata(each, keys, NODE_ANNOTATIONS)) for each in self._nodes.values()]
        used = {pod["metadata"].get("namespace") for pod in self._pods}
        objects += [_build_object("Namespace", each) for each in self._namespaces if each.metadata.name in used]
        notes = [note for each in self._notes.values() for note in each]
        return TrimmedCluster([*objects, *self._pods], [*notes, *describe_unfollowed(self._unfollowed)])


def trim_cluster(
    nodes: Iterable[Object], pods: Iterable[Object], namespaces: Iterable[Object], scope: SnapshotScope
) -> TrimmedCluster:
    """The same from objects in memory."""
    trimmer = ClusterTrimmer(scope)
    for item in nodes:
        trimmer.add_node(item)
    for item in pods:
        trimmer.add_pod(item)
    for item in namespaces:
        trimmer.add_namespace(item)
    return trimmer.build_cluster()


def list_selected_keys(spec: Object) -> Iterator[str]:
    """The keys of node labels by which the pod chooses."""
    yield from spec.get("nodeSelector") or ()
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        yield from (each["key"] for each in term.get("matchExpressions") or ())


def _convert(item: Object, kind: type[_AnyKept], notes: list[str]) -> _AnyKept | None:
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        name = (item.get("metadata") or {}).get("name")
        notes.append(f"{kind.__name__.removeprefix('Kept').lower()} {name} is left out: {error}")
        return None


def _has_cards(node: KeptNode, scope: SnapshotScope) -> bool:
    offered = {*(node.status.capacity or ()), *(node.status.allocatable or ())}
    return well_known.NODE_CARDS in (node.metadata.annotations or {}) or scope.resource in offered


def _matters(pod: KeptPod, node_names: Collection[str], scope: SnapshotScope) -> bool:
    """Whether the pod takes anything of these nodes, or asks for cards."""
    if pod.status.phase in FINISHED_PHASES:
        return False
    if pod.spec.node_name in node_names:
        return True
    return not pod.spec.node_name and _asks(pod, scope)


def _asks(pod: KeptPod, scope: SnapshotScope) -> bool:
    containers = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
    amounts = [each.resources for each in containers if each.resources is not None]
    return any(scope.resource in (each.requests or ()) or scope.resource in (each.limits or ()) for each in amounts)


def _trim_pod(pod: KeptPod, scope: SnapshotScope) -> KeptPod:
    pod = _trim_metadata(pod, POD_LABELS | set(scope.label_keys), POD_ANNOTATIONS)
    spec = msgspec.structs.replace(
        pod.spec,
        containers=_trim_containers(pod.spec.containers),
        init_containers=_trim_containers(pod.spec.init_containers),
    )
    return msgspec.structs.replace(pod, spec=spec)


def _trim_containers(containers: list[KeptContainer] | None) -> list[KeptContainer] | None:
    """The containers. Of the environment only the last entry for visible devices stays, if admission's, as a fixed text; ports only if the host's."""
    if containers is None:
        return None
    return [
        msgspec.structs.replace(
            each, env=_build_reference(each), ports=[port for port in each.ports or () if port.host_port] or None
        )
        for each in containers
    ]


def _build_reference(container: KeptContainer) -> list[EnvVar] | None:
    entry = build_admission_entry(container.name)
    last = next((each for each in reversed(container.env or ()) if each.name == entry.name), None)
    return [entry] if last == entry else None


def _trim_metadata(kept: _AnyKept, labels: Collection[str], annotations: Collection[str]) -> _AnyKept:
    metadata = msgspec.structs.replace(
        kept.metadata,
        labels=_select_keys(kept.metadata.labels, labels),
        annotations=_select_keys(kept.metadata.annotations, annotations),
    )
    return msgspec.structs.replace(kept, metadata=metadata)


def _select_keys(texts: Mapping[str, str] | None, keys: Collection[str]) -> Texts | None:
    return {key: text for key, text in (texts or {}).items() if key in keys} or None


def _build_object(kind: str, kept: KeptFields) -> Object:
    built: dict[str, Any] = msgspec.to_builtins(kept)  # Any: JSON
    return {"apiVersion": "v1", "kind": kind, **built}
