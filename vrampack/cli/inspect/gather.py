"""Reads nodes and pods and counts who holds what: the one value that every form of output prints.

The counting is `vrampack.cards.holding`, so the numbers are the extender's own, also while no extender runs.
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
from vrampack.cli.inspect.errors import DamagedError, ExpiredError, ReadError
from vrampack.cli.inspect.objects import name_of, read_node_object, read_page, read_pod, to_node

T = TypeVar("T")

Resource = Literal["nodes", "pods"]


class Reader(Protocol):
    """Where the objects come from."""

    def pages(self, resource: Resource) -> Iterable[bytes]:
        """All objects of the cluster, each page a v1 list. Raises `ExpiredError` when the rest cannot be had."""
        ...


@dataclass(frozen=True, slots=True)
class NodeView:
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
        """Of all pods, each counted once."""
        return count_held_units(self.node, self.holds)

    @property
    def total_units(self) -> int:
        return self.node.total_units


@dataclass(frozen=True, slots=True)
class Unread:
    """An object, or an annotation of a node, that cannot be read and is left out."""

    what: str
    problem: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes that have something to show, by name, and the sums of the whole cluster."""

    unit_mib: int
    nodes: tuple[NodeView, ...]
    used_units: int
    """Of all pods, each counted once, on nodes with the cluster's unit: others cannot be added to them."""
    kept_units: int
    """What nobody else may have: a pod on no known card counts on every card of its node."""
    total_units: int
    unread: tuple[Unread, ...] = ()
    bare: frozenset[str] = frozenset()
    """Nodes that have no GPU memory to share, no problem and no pod of ours."""


def gather(reader: Reader, *, unit_mib: int | None = None) -> Cluster:
    """Read the cluster and count. `unit_mib` is what most nodes publish unless it is given."""
    nodes, unread_nodes = _read_all(reader, "nodes", read_node_object, lambda node: node)
    pods, unread_pods = _read_all(reader, "pods", read_pod, _keep)
    readings = [to_node(node, unit_mib=unit_mib or DEFAULT_UNIT_MIB) for node in nodes]
    unit = unit_mib or _common_unit(readings)
    if unit != DEFAULT_UNIT_MIB:
        readings = [to_node(node, unit_mib=unit) for node in nodes]
    views = _views(readings, pods, unit)
    shown = tuple(view for view in views if view.node.cards or view.holds or view.node.problem)
    summed = [view for view in shown if view.node.unit_mib == unit]
    return Cluster(
        unit_mib=unit,
        nodes=shown,
        used_units=sum(view.used_units for view in summed),
        kept_units=sum(view.node.used_units for view in summed),
        total_units=sum(view.total_units for view in summed),
        unread=tuple(sorted((*unread_nodes, *_left_out(readings), *unread_pods), key=lambda each: each.what)),
        bare=frozenset(view.node.name for view in views) - {view.node.name for view in shown},
    )


def select(cluster: Cluster, names: Sequence[str]) -> Cluster:
    """Only these nodes. The sums stay the cluster's."""
    return replace(cluster, nodes=tuple(view for view in cluster.nodes if view.node.name in names))


Found = tuple[list[T], list[Unread]]


def _read_all(
    reader: Reader, resource: Resource, read: Callable[[object], T], keep: Callable[[T], T | None]
) -> Found[T]:
    """All objects of one kind. A list that expires half-way is read anew, once."""
    try:
        return _read_once(reader, resource, read, keep)
    except ExpiredError:
        return _read_once(reader, resource, read, keep)


def _read_once(
    reader: Reader, resource: Resource, read: Callable[[object], T], keep: Callable[[T], T | None]
) -> Found[T]:
    found: list[T] = []
    unread: list[Unread] = []
    for body in reader.pages(resource):
        try:
            page = read_page(body)
        except DamagedError as error:
            raise ReadError(f"the list of {resource} cannot be read: {error}") from error
        for item in page.items:
            try:
                kept = keep(read(item))
            except DamagedError as error:
                unread.append(Unread(f"{resource[:-1]} {name_of(item)}", str(error)))
            else:
                if kept is not None:
                    found.append(kept)
    return found, unread


def _keep(pod: Pod) -> Pod | None:
    """Pods that hold memory of a card: bound, not finished, ours. A terminating one still holds it."""
    return pod if pod.holds_memory else None


def _common_unit(readings: Iterable[NodeReading]) -> int:
    """What most nodes publish; of equally many the default, else the smallest."""
    votes = Counter(reading.facts.unit_mib for reading in readings if reading.facts.unit_mib is not None)
    best = max(votes.values(), default=0)
    candidates = [unit for unit, count in votes.items() if count == best]
    return DEFAULT_UNIT_MIB if DEFAULT_UNIT_MIB in candidates else min(candidates, default=DEFAULT_UNIT_MIB)


def _views(readings: Iterable[NodeReading], pods: Iterable[Pod], unit_mib: int) -> list[NodeView]:
    bound: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        bound[pod.node_name].append(pod)
    views = []
    for reading in sorted(readings, key=lambda reading: reading.facts.name):
        facts = reading.facts
        holds = list_holds(facts, bound.get(facts.name, ()))
        views.append(NodeView(build_node_from_holds(facts, holds, unit_mib=unit_mib), tuple(holds)))
    return views


def _left_out(readings: Iterable[NodeReading]) -> Iterable[Unread]:
    """What could not be read of a node beside its cards; those are its problem."""
    for reading in readings:
        for problem in reading.problems:
            if problem != reading.facts.problem:
                yield Unread(f"node {reading.facts.name}", problem)
