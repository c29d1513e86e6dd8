"""What preempt answered lately: for whom which pods may be evicted where, before the API shows a nomination.

    preempt answers --expect--> expected on all nodes --nomination--> on that node --bound, leaving, gone, or 5 s--> forgotten

The scheduler goes on to its next pod at once. That it nominated this one is written beside the deletions of the victims, and
may be seen after them: until then their cards would be anybody's. Of many nodes, too many to look at for every pod, those
count where a victim is going. A restart forgets all this, and the nominations come from the API as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from vrampack.cards.pod import Pod

EXPECTED_SECONDS = 5.0
"""Deletions and nomination are written within milliseconds; an API server that takes longer has other troubles."""
MOST_EXPECTED = 64
"""Answers: the scheduler tries one pod at a time, and 64 in 5 s is more than it does."""
NODES_AT_ONCE = 32
"""Nodes that count from the answer on, of all answers: what is kept on each is found anew for every pod, at 80 us."""


@dataclass(slots=True)
class Expected:
    """One answer."""

    pod: Pod
    victims: Mapping[str, frozenset[str]]
    """Uids by node."""
    nominated_before: frozenset[str]
    """What scheduler and ledger knew of it: no outcome of this answer, except to the same node again."""
    until: float
    is_at_once: bool
    """All its nodes count; else those where a victim is going."""
    is_known: bool
    """The ledger has shown the pod."""


class Evictions:
    """At most one answer for each pod, the oldest first."""

    def __init__(self, *, pod_of: Callable[[str], Pod | None], clock: Callable[[], float]) -> None:
        self._pod_of = pod_of
        self._clock = clock
        self._expected: dict[str, Expected] = {}
        self._kept: set[str] = set()
        """Nodes that were named since `ended` was asked."""

    def expect(self, pod: Pod, victims: Mapping[str, Collection[str]]) -> None:
        """Preempt answered these uids by node for the pod, which is as the call shows it."""
        self._expected.pop(pod.uid, None)
        known = self._pod_of(pod.uid)
        self._expected[pod.uid] = Expected(
            pod,
            victims={name: frozenset(uids) for name, uids in victims.items()},
            nominated_before=frozenset({"", pod.nominated_node, known.nominated_node if known is not None else ""}),
            until=self._clock() + EXPECTED_SECONDS,
            is_at_once=len(victims) + self._count_at_once() <= NODES_AT_ONCE,
            is_known=known is not None,
        )
        if len(self._expected) > MOST_EXPECTED:
            del self._expected[next(iter(self._expected))]

    def __len__(self) -> int:
        return len(self._expected)

    def __contains__(self, uid: str) -> bool:
        return uid in self._expected

    def pods(self) -> dict[str, list[Pod]]:
        """For whom others may be evicted, by node."""
        found: dict[str, list[Pod]] = {}
        for each, pod in self._live(list(self._expected.values())):
            for name in self._nodes_of(each, pod):
                found.setdefault(name, []).append(pod)
        self._kept |= found.keys()
        return found

    def pods_at(self, node_name: str) -> list[Pod]:
        """For whom others may be evicted from this node."""
        answers = [each for each in self._expected.values() if node_name in each.victims]
        return [pod for each, pod in self._live(answers) if node_name in self._nodes_of(each, pod)]

    def victims(self, uid: str, node_name: str) -> frozenset[str]:
        """Who may be evicted from this node for that pod."""
        each = self._expected.get(uid)
        return each.victims.get(node_name, frozenset()) if each is not None else frozenset()

    def ended(self) -> set[str]:
        """Nodes that were named since the last time and are no more."""
        before, self._kept = self._kept, set()
        return before - self.pods().keys()

    def _live(self, answers: Iterable[Expected]) -> Iterator[tuple[Expected, Pod]]:
        """Those of them that still count, with the pod as it is now."""
        now = self._clock()
        for each in answers:
            uid = each.pod.uid
            known = self._pod_of(uid)
            each.is_known |= known is not None
            pod = known if each.is_known else each.pod
            if pod is None or pod.node_name or pod.is_leaving or now >= each.until:
                del self._expected[uid]
            else:
                yield each, pod

    def _count_at_once(self) -> int:
        answers = [each for each in self._expected.values() if each.is_at_once]
        return sum(len(self._nodes_of(each, pod)) for each, pod in self._live(answers))

    def _nodes_of(self, each: Expected, pod: Pod) -> Collection[str]:
        if pod.nominated_node not in each.nominated_before:
            return each.victims.keys() & {pod.nominated_node}
        if each.is_at_once:
            return each.victims.keys()
        return [name for name, uids in each.victims.items() if any(self._is_leaving(uid) for uid in uids)]

    def _is_leaving(self, uid: str) -> bool:
        """Whether the pod is going; one that is gone, or not ours, is not known."""
        pod = self._pod_of(uid)
        return pod is None or pod.is_leaving
