"""How much CPU and main memory hosts have left, as the API server shows it. Kept only while a policy in force needs it.

    nodes: allocatable --.
    pods, ours or not ---+--> sums by node --> `HostRooms`, in steps --> ranks of policies that read them

Only ranks depend on it: no verdict, no capacity generation. A pod counts once the watch shows it bound. After a reload that
first brings such a policy, no host is known until the next lists make the sums complete.
"""

from __future__ import annotations

from collections.abc import Collection

from policies.engine.host_rooms import HostRooms
from vrampack.cards.host_room import HostResources
from vrampack.kube.host_requests import NOTHING, read_allocatable_host, read_host_request
from vrampack.kube.objects import FINISHED_PHASES, NodeObject, PodObject, PodSpec


class HostUsage:
    """Fed by the sinks of both reflectors."""

    def __init__(self, *, is_kept: bool) -> None:
        self.rooms = HostRooms()
        """What policies see."""
        self.is_kept = is_kept
        self._has_all_pods = False
        self._allocatable: dict[str, HostResources] = {}
        self._pods: dict[str, tuple[str, HostResources]] = {}
        """Node and request of every bound pod, by uid."""
        self._used: dict[str, HostResources] = {}

    def set_kept(self, *, is_kept: bool) -> bool:
        """Set whether a policy in force reads this from now on. Returns true when both lists are needed before it can."""
        has_begun = is_kept and not self.is_kept
        if self.is_kept and not is_kept:
            for name in list(self.rooms.rooms):
                self.rooms.put_room(name, None)
            for kept in (self._allocatable, self._pods, self._used):
                kept.clear()
            self._has_all_pods = False
        self.is_kept = is_kept
        return has_begun

    def read_request(self, spec: PodSpec) -> HostResources | None:
        """What a pod asks of its host; None when no policy needs it."""
        return read_host_request(spec) if self.is_kept else None

    def update_node(self, node: NodeObject) -> None:
        if self.is_kept:
            self.update_host(node.metadata.name, read_allocatable_host(node))

    def update_host(self, name: str, allocatable: HostResources | None) -> None:
        """Set what kubelet offers there; None when it does not say."""
        if allocatable is None:
            self._allocatable.pop(name, None)
        else:
            self._allocatable[name] = allocatable
        self._publish(name)

    def remove_node(self, name: str) -> None:
        if self._allocatable.pop(name, None) is not None:
            self._publish(name)
            self.rooms.changes.forget_removed_nodes(self._allocatable)

    def update_pod(self, pod: PodObject) -> HostResources | None:
        """Count any pod, as pods without cards take CPU too. Returns its request, as `read_request` does."""
        if not self.is_kept:
            return None
        node_name, request = pod.spec.node_name or "", read_host_request(pod.spec)
        if not node_name or pod.status.phase in FINISHED_PHASES:
            self.remove_pod(pod.metadata.uid)
            return request
        known, counted = self._pods.get(pod.metadata.uid), (node_name, request)
        if known == counted:
            return request
        self._pods[pod.metadata.uid] = counted
        if known is not None:
            self._add(*known, -1)
        self._add(*counted, 1)
        if known is not None and known[0] != node_name:
            self._publish(known[0])
        self._publish(node_name)
        return request

    def remove_pod(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        if known is not None:
            self._add(*known, -1)
            self._publish(known[0])

    def begin_list(self) -> frozenset[str] | None:
        """A list of all pods begins. Returns the uids counted so far, None when nothing is kept; pass it to `end_list`."""
        return frozenset(self._pods) if self.is_kept else None

    def end_list(self, known_before: Collection[str] | None, listed: Collection[str]) -> None:
        """The list is complete, and so are the sums if they were kept since it began."""
        if known_before is None or not self.is_kept:
            return
        for uid in known_before:
            if uid not in listed:
                self.remove_pod(uid)
        self._has_all_pods = True
        for name in self._allocatable:
            self._publish(name)

    def _add(self, node_name: str, request: HostResources, sign: int) -> None:
        used = self._used.get(node_name, NOTHING)
        cpu_milli, memory_mib = used.cpu_milli + sign * request.cpu_milli, used.memory_mib + sign * request.memory_mib
        if cpu_milli or memory_mib:
            self._used[node_name] = HostResources(cpu_milli, memory_mib)
        else:
            self._used.pop(node_name, None)

    def _publish(self, name: str) -> None:
        if not self._has_all_pods:
            return
        allocatable, used = self._allocatable.get(name), self._used.get(name, NOTHING)
        room = None
        if allocatable is not None:
            cpu_milli, memory_mib = allocatable.cpu_milli - used.cpu_milli, allocatable.memory_mib - used.memory_mib
            room = HostResources(max(0, cpu_milli), max(0, memory_mib))
        self.rooms.put_room(name, room)
