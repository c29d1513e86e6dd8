"""Whether a group of pods that start together can find cards at all: if too few can, each of its pods is refused at once.

Otherwise some pods of the group would hold places that other groups need, and those theirs, and none would ever be whole.
The answer is an upper bound, so a group that fits is never refused: members with one request are counted alone, on all nodes, and
what members hold but have not bound counts as free. So do pods of lower priority: the scheduler would evict more of them if it were
told that a free card is none. It may still find that such a group does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cachetools import LRUCache

from extender.state.ledger import Ledger
from extender.state.node_labels import NodeLabels
from extender.state.pod_groups import PodGroups
from vrampack.cards.joint_places import count_places
from vrampack.cards.pod import Pod
from vrampack.cards.pod_group import GroupKey
from vrampack.cards.request import CardRequest

MAX_COUNTS = 256
MAX_BUILT = 30
"""Nodes that are built as they would be without some pods, for all requests: 2 ms. Where more have pods that may leave, a group is tried."""
MAX_REQUESTS = 8
"""Of the different requests in one group, the most frequent are counted; each takes a walk over all nodes."""


@dataclass(frozen=True, slots=True)
class GroupShortfall:
    """How far a group is from being whole."""

    waiting: int
    """Members without a node."""
    placeable: int
    """At most so many of these find cards."""
    needed: int
    """So many of these must."""

    def __str__(self) -> str:
        return (
            f"{self.waiting} of its pods wait and at least {self.needed} must start together, "
            f"but there are cards for at most {self.placeable}"
        )


_Wish = tuple[str, CardRequest | None, int]
"""The uid of a member, what it asks for and its priority."""


class _Count(NamedTuple):
    generations: tuple[int, int]
    """Of nodes and of capacity, which rises with every change of the rules too."""
    wishes: frozenset[_Wish]
    spare: int
    missing: int


@dataclass(slots=True)
class _Leaving:
    """The pods that may leave their places to a group."""

    uids: Collection[str]
    priority: int
    """All of a lower one may."""
    built: int = 0
    """For how many nodes this made a difference."""


class GroupFit:
    """Over one ledger."""

    def __init__(self, ledger: Ledger, groups: PodGroups, node_labels: NodeLabels) -> None:
        self._ledger = ledger
        self._groups = groups
        self._node_labels = node_labels
        self._counts: LRUCache[GroupKey, _Count] = LRUCache(MAX_COUNTS)
        """All pods of a group get the same answer, as long as nothing changes."""

    def find_shortfall(self, pod: Pod) -> GroupShortfall | None:
        """Why the group of this unbound pod cannot be whole; None if it may be, or the pod is in no group that must be."""
        minimum = None if pod.group is None else self._find_minimum(pod.group)
        if pod.group is None or minimum is None:
            return None
        members = self._ledger.list_group(pod.group)
        if all(member.uid != pod.uid for member in members):
            members.append(self._ledger.in_force.resolve_pod(pod))
        unbound = [member for member in members if not self._is_placed(member)]
        waiting = [member for member in unbound if not member.is_terminating]
        needed = minimum - (len(members) - len(unbound))
        if not 0 < needed <= len(waiting):
            return None  # it may be whole already, or have pods that are not known
        missing = self._find_missing(pod.group, waiting, spare=len(waiting) - needed)
        if len(waiting) - missing >= needed:
            return None
        return GroupShortfall(len(waiting), len(waiting) - missing, needed)

    def _find_minimum(self, group: GroupKey) -> int | None:
        """How many pods that ask for memory must start together; those that do not may be the others."""
        minimum = self._groups.get_minimum(group)
        return None if minimum is None else minimum - self._ledger.count_companions(group)

    def _is_placed(self, pod: Pod) -> bool:
        return bool(pod.node_name) or self._ledger.places.get_reservation(pod.uid) is not None

    def list_in_vain(self, group: GroupKey) -> list[str]:
        """The members that hold places of no use, because too few members have one; nominated ones are not among them."""
        minimum, members = self._find_minimum(group), self._ledger.list_group(group)
        if minimum is None or len(members) < minimum or self.has_enough_places(group):
            return []
        held = [place for pod in members for place in self._ledger.places.list_held_places_of(pod.uid)]
        confirmed = {place.pod.uid for place in held if place.is_confirmed}
        return list(dict.fromkeys(place.pod.uid for place in held if place.pod.uid not in confirmed))

    def has_enough_places(self, group: GroupKey) -> bool:
        """Whether so many of its pods are bound or have a place, on one set of nodes, that they may start."""
        minimum = self._find_minimum(group)
        if minimum is None:
            return False
        members, places = self._ledger.list_group(group), self._ledger.places
        if sum(bool(pod.node_name) or places.has_place(pod.uid) for pod in members) < minimum:
            return False  # most calls end here: each place that is named asks, in a large group hundreds of times
        if not self._groups.get_topology_key(group):
            return True
        unbound = [pod for pod in members if not self._is_placed(pod)]
        held_on = Counter(node_set for pod in unbound for node_set in self._list_node_sets_of(pod, group))
        return len(members) - len(unbound) + max(held_on.values(), default=0) >= minimum

    def _list_node_sets_of(self, pod: Pod, group: GroupKey) -> set[str]:
        """Those on which a place is held for the pod."""
        return {self.get_node_set(group, place.node_name) for place in self._ledger.places.list_held_places_of(pod.uid)}

    def get_node_set(self, group: GroupKey, node_name: str) -> str:
        """The set of nodes with this one on which the scheduler tries all pods of the group, before or after other sets.

        Empty if it tries them on all nodes at once.
        """
        return self.find_common_node_set(group, (node_name,))

    def find_common_node_set(self, group: GroupKey, names: Sequence[str]) -> str:
        """The set that has all of these nodes; empty if none has."""
        key = self._groups.get_topology_key(group)
        node_sets = {self._node_labels.get_value(name, key) for name in names} if key else set()
        return node_sets.pop() if len(node_sets) == 1 else ""

    def _find_missing(self, group: GroupKey, waiting: Collection[Pod], *, spare: int) -> int:
        generations = self._ledger.generation, self._ledger.capacity_generation
        wishes, known = frozenset(map(_get_wish, waiting)), self._counts.get(group)
        if known is None or known[:3] != (generations, wishes, spare):
            known = self._counts[group] = _Count(generations, wishes, spare, self._count_missing(waiting, spare))
        return known.missing

    def _count_missing(self, waiting: Collection[Pod], spare: int) -> int:
        """How many of these find no cards at least. More than `spare` are too many, however many these are."""
        leaving = _Leaving({pod.uid for pod in waiting}, max(pod.priority for pod in waiting))
        wanted = Counter(pod.request.card_request for pod in waiting if pod.request is not None)
        missing = 0
        for request, count in wanted.most_common(MAX_REQUESTS):
            missing += count - self._count_places(request, leaving, count)
            if missing > spare:
                break
        return missing

    def _count_places(self, request: CardRequest, leaving: _Leaving, wanted: int) -> int:
        """How many pods with this request may find cards, up to `wanted`. All, if too many nodes would have to be built."""
        places = 0
        for known in self._ledger.list_nodes():
            node = self._ledger.get_node_for_group(known.name, leaving.uids, leaving.priority)
            leaving.built += node is not known
            if leaving.built > MAX_BUILT:
                return wanted
            if node is None or node.largest_free_units < request.least_card_units:
                continue
            places += count_places(node, request, wanted - places)
            if places >= wanted:
                return wanted
        return places


def _get_wish(pod: Pod) -> _Wish:
    return pod.uid, None if pod.request is None else pod.request.card_request, pod.priority
