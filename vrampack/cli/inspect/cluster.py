"""Reads nodes and pods and counts who holds what: the one value that every output format prints.

`vrampack.cards.holding` counts, so the numbers equal the extender's, even while no extender runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar

from vrampack.cards.holding import Hold, build_node_from_holds, list_holds
from vrampack.cards.inspection import count_held_units, count_unplaced_units
from vrampack.cards.node import Node
from vrampack.cards.node_annotations import NodeReading
from vrampack.cards.pod import Pod
from vrampack.cards.units import DEFAULT_UNIT_MIB
from vrampack.cli.inspect.api_objects import decode_items, decode_node, decode_pod, describe_object, to_node
from vrampack.cli.inspect.errors import DamagedObjectError, ExpiredListError, ReadError

T = TypeVar("T")

Resource = Literal["nodes", "pods"]


class ListReader(Protocol):
    """Reads the objects of the cluster."""

    def read_pages(self, resource: Resource) -> Iterable[bytes]:
        """All objects of the cluster, each page a v1 list. Raises `ExpiredListError` when the rest cannot be read."""
        ...


class OwnPodReader(ListReader, Protocol):
    """One that knows a namespace of the user's."""

    def read_own_pods(self) -> Iterable[bytes]:
        """All pods of that namespace, each page a v1 list."""
        ...


@dataclass(frozen=True, slots=True)
class InspectedNode:
    """One node and who holds what there, in the order of namespace and name."""

    node: Node
    holds: tuple[Hold, ...]

    @property
    def unplaced(self) -> tuple[Hold, ...]:
        return tuple(hold for hold in self.holds if hold.unplaced_reason)

    @property
    def unplaced_units(self) -> int:
        return sum(count_unplaced_units(self.node, hold) for hold in self.unplaced)

    @property
    def used_units(self) -> int:
        """Units of all pods, each counted once."""
        return count_held_units(self.node, self.holds)

    @property
    def total_units(self) -> int:
        return self.node.total_units


@dataclass(frozen=True, slots=True)
class UnreadObject:
    """An object, or an annotation of a node, that cannot be read and is left out."""

    object_name: str
    problem: str


@dataclass(frozen=True, slots=True)
class InspectedCluster:
    """The nodes that have something to show, by name, and the sums of the whole cluster."""

    unit_mib: int
    nodes: tuple[InspectedNode, ...]
    used_units: int
    """Units of all pods, each counted once, on nodes with the cluster's unit: other units cannot be added."""
    reserved_units: int
    """Units not available to other pods: a pod on no known card counts on every card of its node."""
    total_units: int
    unread_objects: tuple[UnreadObject, ...] = ()
    nodes_without_memory: frozenset[str] = frozenset()
    """Nodes that have no GPU memory to share, no problem and no pod of ours."""


def inspect_cluster(reader: ListReader, *, unit_mib: int | None = None) -> InspectedCluster:
    """Read the cluster and count. Without `unit_mib`, the cluster's unit is the one that most nodes publish."""
    nodes, unread_nodes = _read_list(reader, "nodes", decode_node, lambda node: node)
    pods, unread_pods = _read_list(reader, "pods", decode_pod, _select_holder)
    readings = [to_node(node, unit_mib=unit_mib or DEFAULT_UNIT_MIB) for node in nodes]
    unit = unit_mib or _find_common_unit(readings)
    if unit != DEFAULT_UNIT_MIB:
        readings = [to_node(node, unit_mib=unit) for node in nodes]
    views = _count_nodes(readings, pods, unit)
    shown = tuple(view for view in views if view.node.cards or view.holds or view.node.problem)
    summed = [view for view in shown if view.node.unit_mib == unit]
    return InspectedCluster(
        unit_mib=unit,
        nodes=shown,
        used_units=sum(view.used_units for view in summed),
        reserved_units=sum(view.node.used_units for view in summed),
        total_units=sum(view.total_units for view in summed),
        unread_objects=tuple(
            sorted((*unread_nodes, *_list_unread_parts(readings), *unread_pods), key=lambda each: each.object_name)
        ),
        nodes_without_memory=frozenset(view.node.name for view in views) - {view.node.name for view in shown},
    )


def select_nodes(cluster: InspectedCluster, names: Sequence[str]) -> InspectedCluster:
    """Only these nodes. The sums stay the cluster's."""
    return replace(cluster, nodes=tuple(view for view in cluster.nodes if view.node.name in names))


DecodedObjects = tuple[list[T], list[UnreadObject]]


def _read_list(
    reader: ListReader, resource: Resource, read: Callable[[object], T], select: Callable[[T], T | None]
) -> DecodedObjects[T]:
    """All objects of one kind. A list that expires half-way is read again, once."""
    try:
        return _read_list_once(reader, resource, read, select)
    except ExpiredListError:
        return _read_list_once(reader, resource, read, select)


def _read_list_once(
    reader: ListReader, resource: Resource, read: Callable[[object], T], select: Callable[[T], T | None]
) -> DecodedObjects[T]:
    found: list[T] = []
    unread: list[UnreadObject] = []
    for body in reader.read_pages(resource):
        try:
            items = decode_items(body)
        except DamagedObjectError as error:
            raise ReadError(f"the list of {resource} cannot be read: {error}") from error
        for item in items:
            try:
                kept = select(read(item))
            except DamagedObjectError as error:
                unread.append(UnreadObject(f"{resource[:-1]} {describe_object(item)}", str(error)))
            else:
                if kept is not None:
                    found.append(kept)
    return found, unread


def _select_holder(pod: Pod) -> Pod | None:
    """The pod if it holds card memory: bound, not finished, ours. A terminating one still holds it."""
    return pod if pod.holds_memory else None


def _find_common_unit(readings: Iterable[NodeReading]) -> int:
    """The unit that most nodes publish; on a tie the default, else the smallest."""
    votes = Counter(reading.facts.unit_mib for reading in readings if reading.facts.unit_mib is not None)
    best = max(votes.values(), default=0)
    candidates = [unit for unit, count in votes.items() if count == best]
    return DEFAULT_UNIT_MIB if DEFAULT_UNIT_MIB in candidates else min(candidates, default=DEFAULT_UNIT_MIB)


def _count_nodes(readings: Iterable[NodeReading], pods: Iterable[Pod], unit_mib: int) -> list[InspectedNode]:
    bound: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        bound[pod.node_name].append(pod)
    views = []
    for reading in sorted(readings, key=lambda reading: reading.facts.name):
        facts = reading.facts
        holds = list_holds(facts, bound.get(facts.name, ()))
        views.append(InspectedNode(build_node_from_holds(facts, holds, unit_mib=unit_mib), tuple(holds)))
    return views


def _list_unread_parts(readings: Iterable[NodeReading]) -> Iterable[UnreadObject]:
    """The parts of nodes that could not be read, except cards, which are the node's problem."""
    for reading in readings:
        for problem in reading.problems:
            if problem != reading.facts.problem:
                yield UnreadObject(f"node {reading.facts.name}", problem)
