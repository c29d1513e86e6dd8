"""What kube-scheduler checks by itself before it asks the extender: its filters, and what hosts have left.

It counts CPU, main memory, the number of pods and every resource but the extender's, with the scheduler's own sums.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from sys import maxsize

import msgspec

from policies.engine.host_rooms import HostRooms
from vrampack.cards.host_room import HostResources
from vrampack.cards.units import MIB
from vrampack.kube.examined_objects import ExaminedNode, ExaminedPodSpec
from vrampack.kube.node_filters import (
    CPU,
    PODS,
    Amounts,
    HostUse,
    find_placement_obstacle,
    list_reasons,
    list_shortages,
    read_allocatable,
    read_host_use,
)

MEMORY = "memory"
ENDLESS = dict.fromkeys((CPU, MEMORY, PODS), maxsize)
"""The resources of a node that does not state them, as one written by hand."""
MAX_SHAPES = 256
"""How many kinds of pods, as filters and hosts see them, are cached: more than a cluster's workloads usually have."""


@dataclass(frozen=True, slots=True)
class ReplayedHost:
    """What a host offers, and what its pods take."""

    allocatable: Amounts
    used: HostUse


@dataclass(frozen=True, slots=True)
class _PodShape:
    """Pods that no filter tells apart, and where they can go."""

    passing: frozenset[str]
    """Nodes with the right labels and taints."""
    asked: HostUse
    fitting: set[str]
    """Those of them that have room; updated with every pod."""


class ReplayedHosts:
    """The hosts of these nodes. `rooms` is kept up to date for policies that read it."""

    def __init__(self, nodes: Iterable[ExaminedNode], rooms: HostRooms, memory_resource: str) -> None:
        self._nodes = {node.metadata.name: node for node in nodes}
        self._rooms = rooms
        self._memory_resource = memory_resource
        self._stated: set[str] = set()
        self.by_name: dict[str, ReplayedHost] = {}
        self._shapes: dict[bytes, _PodShape] = {}
        for name, node in self._nodes.items():
            amounts = read_allocatable(node)
            if CPU in amounts and MEMORY in amounts:
                self._stated.add(name)
            self.by_name[name] = ReplayedHost({**ENDLESS, **amounts}, HostUse())
            self._publish(name)

    def select_hosts(self, spec: ExaminedPodSpec) -> Collection[str]:
        """The nodes about which the scheduler would ask the extender; valid until another pod is held or released."""
        asked = self._read_use(spec)
        key = msgspec.json.encode([spec.node_selector, spec.tolerations, spec.affinity, asked.amounts, asked.ports])
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) == MAX_SHAPES:
                self._shapes.clear()
            shape = self._shapes[key] = self._build_shape(spec, asked)
        return shape.fitting

    def find_obstacles(self, spec: ExaminedPodSpec) -> dict[str, list[str]]:
        """The scheduler's reasons, by refused node."""
        found = {
            name: list_reasons(
                spec, node, self.by_name[name].allocatable, self.by_name[name].used, ignored=(self._memory_resource,)
            )
            for name, node in self._nodes.items()
        }
        return {name: reasons for name, reasons in found.items() if reasons}

    def hold_pod(self, spec: ExaminedPodSpec, name: str) -> None:
        """The pod is on this node from now on."""
        if name in self.by_name:
            self._set_use(name, self.by_name[name].used + self._read_use(spec))

    def release_pod(self, spec: ExaminedPodSpec, name: str) -> None:
        if name in self.by_name:
            self._set_use(name, self.by_name[name].used - self._read_use(spec))

    def _read_use(self, spec: ExaminedPodSpec) -> HostUse:
        use = read_host_use(spec)
        return replace(use, amounts={key: each for key, each in use.amounts.items() if key != self._memory_resource})

    def _build_shape(self, spec: ExaminedPodSpec, asked: HostUse) -> _PodShape:
        passing = frozenset(name for name, node in self._nodes.items() if not find_placement_obstacle(spec, node))
        return _PodShape(passing, asked, {name for name in passing if self._has_room(name, asked)})

    def _set_use(self, name: str, used: HostUse) -> None:
        self.by_name[name] = replace(self.by_name[name], used=used)
        for shape in self._shapes.values():
            if name in shape.passing and self._has_room(name, shape.asked):
                shape.fitting.add(name)
            else:
                shape.fitting.discard(name)
        self._publish(name)

    def _has_room(self, name: str, asked: HostUse) -> bool:
        host = self.by_name[name]
        return not any(list_shortages(asked, host.allocatable, host.used))

    def _publish(self, name: str) -> None:
        if name in self._stated:
            host = self.by_name[name]
            cpu_milli, memory = (
                max(0, host.allocatable[each] - host.used.amounts.get(each, 0)) for each in (CPU, MEMORY)
            )
            self._rooms.put_room(name, HostResources(cpu_milli, memory // MIB))


def describe_unfollowed(fields: Mapping[str, int]) -> list[str]:
    """A line for each field, with how many pods have it."""
    return [
        f"{count} {'pod has' if count == 1 else 'pods have'} {field}: a replay places as if it were not there"
        for field, count in sorted(fields.items())
        if field and count
    ]
