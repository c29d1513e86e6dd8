"""Places that were named to the scheduler for pods that it may bind late: they count as used until the pod is bound.

    prioritize, or filter with one node --> held --bind--> reserved
                                             '--its next filter, a failed attempt, its end, or the longest time--> free

Between the choice of a node and the bind the scheduler waits for volumes and for the other pods of a group, for minutes, and
counts the pod on its node meanwhile. So does the ledger. That an attempt has failed is seen on the pod: from 1.35 on the
scheduler nominates the pod to the node while it waits, and ends the nomination; in every version it writes another
PodScheduled condition. It puts the pod back into its queue before it writes that, so the next attempt may begin before the news
of the last one is heard: such news ends no hold. A restart forgets held places, but for those of nominated pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from extender.state.pods_by_node import PodsByNode
from vrampack.cards.allocation import Allocation
from vrampack.cards.holding import HoldState
from vrampack.cards.pod import Pod
from vrampack.cards.resource_version import is_later_version

HoldEnd = Literal["bound", "filtered", "failed", "gone", "expired"]
"""`filtered`: filter was called for it again; `failed`: its attempt, as the pod or its bind shows."""


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """One such place."""

    pod: Pod
    """As the scheduler had it when it was told of the place."""
    node_name: str
    allocation: Allocation
    score: float
    made_at: float
    """Seconds of the ledger's clock."""
    is_confirmed: bool = False
    """Whether the API server has shown the pod nominated to the node."""
    may_hear_of_earlier: bool = False
    """Whether the API server may still have to show how an earlier attempt failed."""

    @property
    def state(self) -> HoldState:
        return "held"

    def is_given_up_by(self, pod: Pod) -> bool:
        """Whether this state of the unbound pod shows that the attempt has failed."""
        if not is_later_version(pod.resource_version, than=self.pod.resource_version):
            return False
        is_nominated_elsewhere = pod.nominated_node not in ("", self.node_name, self.pod.nominated_node)
        has_lost_nomination = self.is_confirmed and pod.nominated_node != self.node_name
        return is_nominated_elsewhere or has_lost_nomination or pod.failed_attempt != self.pod.failed_attempt


class HeldPlaces:
    """At most one for each pod."""

    def __init__(self) -> None:
        self._by_pod: dict[str, HeldPlace] = {}
        """The oldest first."""
        self._pods_by_node = PodsByNode()
        self.ended: dict[HoldEnd, int] = dict.fromkeys(get_args(HoldEnd), 0)
        """How many ended in each way, since the start."""

    def __iter__(self) -> Iterator[HeldPlace]:
        return iter(self._by_pod.values())

    def __len__(self) -> int:
        return len(self._by_pod)

    def get_place(self, uid: str) -> HeldPlace | None:
        return self._by_pod.get(uid)

    def is_on_node(self, uid: str, node_name: str) -> bool:
        held = self._by_pod.get(uid)
        return held is not None and held.node_name == node_name

    def list_on_node(self, node_name: str) -> list[HeldPlace]:
        return [self._by_pod[uid] for uid in self._pods_by_node.list_pods(node_name)]

    def put_place(self, held: HeldPlace) -> None:
        """Add it; the pod has none."""
        self._by_pod[held.pod.uid] = held
        self._pods_by_node.add_pod(held.node_name, held.pod.uid)

    def end_hold(self, uid: str, how: HoldEnd) -> set[str]:
        """Remove the pod's place. Returns the node that it was on, if there was one."""
        held = self._by_pod.pop(uid, None)
        if held is None:
            return set()
        self._pods_by_node.remove_pod(held.node_name, uid)
        self.ended[how] += 1
        return {held.node_name}

    def note_pod(self, pod: Pod) -> bool:
        """The API server shows the unbound pod. Returns whether its place was given up."""
        held = self._by_pod.get(pod.uid)
        if held is None:
            return False
        is_confirmed = pod.nominated_node == held.node_name
        if is_confirmed and not is_later_version(held.pod.resource_version, than=pod.resource_version):
            self._by_pod[pod.uid] = held = replace(held, is_confirmed=True)
        if pod.is_terminating or not held.is_given_up_by(pod):
            return pod.is_terminating
        if held.may_hear_of_earlier:
            self._by_pod[pod.uid] = replace(held, pod=pod, is_confirmed=is_confirmed, may_hear_of_earlier=False)
        return not held.may_hear_of_earlier
