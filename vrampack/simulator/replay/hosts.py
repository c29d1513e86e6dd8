"""What kube-scheduler checks by itself before it asks the extender: its filters, and what hosts have left.

It counts CPU, main memory, the number of pods and every resource but the extender's, with the scheduler's own sums.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from sys import maxsize

from policies.engine.host_rooms import HostRooms
from vrampack.cards.host_room import HostResources
from vrampack.cards.units import MIB
from vrampack.simulator.replay.node_affinity import REQUIRED, matches_node_affinity
from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.scheduling.filters import find_unmodelled_field, run_filters
from vrampack.simulator.scheduling.resources import (
    CPU,
    PODS,
    Amounts,
    NodeResources,
    find_shortages,
    parse_amounts,
    sum_pod_requests,
)

MEMORY = "memory"
ENDLESS = dict.fromkeys((CPU, MEMORY, PODS), maxsize)
"""The resources of a node that does not state them, as one written by hand."""
AFFINITY_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
FOLLOWED_FIELDS = ("affinity", "topologySpreadConstraints")
MAX_SHAPES = 256
"""How many kinds of pods, as filters and hosts see them, are cached: more than a cluster's workloads usually have."""


class ReplayedHosts:
    """The hosts of these nodes. `rooms` is kept up to date for policies that read it."""

    def __init__(self, nodes: Iterable[Object], rooms: HostRooms, memory_resource: str) -> None:
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._rooms = rooms
        self._memory_resource = memory_resource
        self._stated: set[str] = set()
        self._resources: dict[str, NodeResources] = {}
        self._passing: dict[str, frozenset[str]] = {}
        """Nodes that pass the filters, by the fields of a pod that the filters read."""
        self._fitting: dict[tuple[str, tuple[tuple[str, int], ...]], set[str]] = {}
        """Nodes that pass and have room, by those fields and the pod's request; updated with every pod."""
        for name, node in self._nodes.items():
            amounts = parse_amounts((node.get("status") or {}).get("allocatable"))
            if CPU in amounts and MEMORY in amounts:
                self._stated.add(name)
            self._resources[name] = NodeResources(ENDLESS | amounts, {})
            self._publish(name)

    def select_hosts(self, pod: Object) -> Collection[str]:
        """The nodes about which the scheduler would ask the extender; valid until another pod is held or released."""
        filtered, asked = _get_filter_key(pod), tuple(sorted(self._sum_requests(pod).items()))
        fitting = self._fitting.get((filtered, asked))
        if fitting is None:
            if len(self._fitting) == MAX_SHAPES:
                self._fitting.clear()
            fitting = {name for name in self._find_passing(pod) if self._has_room(name, asked)}
            self._fitting[filtered, asked] = fitting
        return fitting

    def find_obstacles(self, pod: Object) -> dict[str, list[str]]:
        """The scheduler's reasons, by refused node."""
        passing, asked, found = self._find_passing(pod), self._sum_requests(pod), {}
        for name, node in self._nodes.items():
            if name not in passing:
                found[name] = run_filters(pod, node) or [AFFINITY_MISMATCH]
            elif shortages := find_shortages(asked, self._resources[name]):
                found[name] = shortages
        return found

    def hold_pod(self, pod: Object, name: str) -> None:
        """The pod is on this node from now on."""
        self._add(pod, name, 1)

    def release_pod(self, pod: Object, name: str) -> None:
        self._add(pod, name, -1)

    def _sum_requests(self, pod: Object) -> Amounts:
        return {key: amount for key, amount in sum_pod_requests(pod).items() if key != self._memory_resource}

    def _find_passing(self, pod: Object) -> frozenset[str]:
        spec, key = pod["spec"], _get_filter_key(pod)
        if key not in self._passing:
            self._passing[key] = frozenset(
                name
                for name, node in self._nodes.items()
                if not run_filters(pod, node) and matches_node_affinity(spec, node)
            )
        return self._passing[key]

    def _add(self, pod: Object, name: str, sign: int) -> None:
        room = self._resources.get(name)
        if room is None:
            return
        used = Counter(room.used)
        used.update({key: sign * amount for key, amount in self._sum_requests(pod).items()})
        self._resources[name] = NodeResources(room.allocatable, used)
        for (filtered, asked), fitting in self._fitting.items():
            if name in self._passing[filtered] and self._has_room(name, asked):
                fitting.add(name)
            else:
                fitting.discard(name)
        self._publish(name)

    def _has_room(self, name: str, asked: Iterable[tuple[str, int]]) -> bool:
        room = self._resources[name]
        return all(amount <= max(0, room.free_amount(resource)) for resource, amount in asked)

    def _publish(self, name: str) -> None:
        if name in self._stated:
            room = self._resources[name]
            cpu_milli, memory = max(0, room.free_amount(CPU)), max(0, room.free_amount(MEMORY))
            self._rooms.put_room(name, HostResources(cpu_milli, memory // MIB))


def _get_filter_key(pod: Object) -> str:
    spec = pod["spec"]
    return json.dumps([spec.get(field) for field in ("nodeSelector", "tolerations", "affinity")], sort_keys=True)


def find_unfollowed_field(pod: Object) -> str:
    """The first field that affects the choice of a node but that a replay ignores; empty when there is none."""
    spec = pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if (affinity.get(kind) or {}).get(REQUIRED):
            return f"spec.affinity.{kind}"
    if any(each.get("whenUnsatisfiable") != "ScheduleAnyway" for each in spec.get("topologySpreadConstraints") or ()):
        return "spec.topologySpreadConstraints"
    others = {key: value for key, value in spec.items() if key not in FOLLOWED_FIELDS}
    return find_unmodelled_field({"spec": others})


def describe_unfollowed(fields: Mapping[str, int]) -> list[str]:
    """A line for each field, with how many pods have it."""
    return [
        f"{count} {'pod has' if count == 1 else 'pods have'} {field}: a replay places as if it were not there"
        for field, count in sorted(fields.items())
        if field and count
    ]
