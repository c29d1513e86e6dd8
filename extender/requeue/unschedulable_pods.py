"""The pods that filter refused: which room they have not seen yet, and which places were offered to them in vain.

A pod that was refused at capacity generation 7 can only be let in by room gained after that. Whoever passes filter, is
bound or gone waits no more; a pod that is bound in vain is tried again by the scheduler itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from vrampack.cards.pod import Pod

INITIAL_BACKOFF_SECONDS = 5.0
MAX_BACKOFF_SECONDS = 300.0
MAX_UNSCHEDULABLE_PODS = 65_536
"""Beyond that the oldest refusal is forgotten: whoever calls filter with made-up pods must not fill the memory."""
UNKNOWN_POD_SECONDS = 300.0
"""How long a refused pod may be unknown to the ledger: longer than the ledger may be stale."""
FLUSH_SECONDS = 290.0
"""The scheduler tries parked pods again after 300 s, so what waited longer than this was not woken by anybody."""


@dataclass(slots=True)
class Rejection:
    """What is known of one refused pod."""

    seen_generation: int
    """The capacity generation that its last no has seen."""
    rejected_at: float
    is_known: bool = False
    """The ledger has shown it at least once."""
    placeable_since: float | None = None
    """When a place was first laid for it since that no."""
    is_activated: bool = False
    """Woken since that no."""
    failures: int = 0
    backs_off_until: float = 0.0
    """It backs off until then: the nodes in `vain` are not offered again before."""
    avoided_nodes: frozenset[str] = frozenset()

    def back_off_node(self, node_name: str, now: float) -> None:
        """A place on this node was of no use to it."""
        self.avoided_nodes = self.avoided_nodes | {node_name} if now < self.backs_off_until else frozenset({node_name})
        self.backs_off_until = now + min(INITIAL_BACKOFF_SECONDS * 2.0 ** min(self.failures, 6), MAX_BACKOFF_SECONDS)
        self.failures += 1


class UnschedulablePods:
    """Refusals by pod uid, the oldest first."""

    def __init__(self) -> None:
        self._rejections: dict[str, Rejection] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._rejections

    def __len__(self) -> int:
        return len(self._rejections)

    def list_rejections(self) -> Iterable[Rejection]:
        return self._rejections.values()

    def get_rejection(self, uid: str) -> Rejection | None:
        return self._rejections.get(uid)

    def reject_pod(self, uid: str, capacity_generation: int, now: float) -> None:
        """Filter said no, knowing all room gained up to this generation."""
        known = self._rejections.pop(uid, None)
        self._rejections[uid] = fresh = Rejection(capacity_generation, now)
        if known is not None:
            fresh.is_known, fresh.failures, fresh.backs_off_until, fresh.avoided_nodes = (
                known.is_known,
                known.failures,
                known.backs_off_until,
                known.avoided_nodes,
            )
        elif len(self._rejections) > MAX_UNSCHEDULABLE_PODS:
            del self._rejections[next(iter(self._rejections))]

    def admit_pod(self, uid: str, now: float) -> bool:
        """Filter said yes. True when nobody but the scheduler's flush can have brought the pod there."""
        known = self._rejections.pop(uid, None)
        return (
            known is not None
            and not known.is_activated
            and known.placeable_since is not None
            and now - known.placeable_since > FLUSH_SECONDS
        )

    def drop_resolved_pods(self, get_pod: Callable[[str], Pod | None], now: float) -> Iterator[tuple[Pod, Rejection]]:
        """Those that the ledger shows unbound; what is bound or gone is forgotten."""
        for uid, refusal in list(self._rejections.items()):
            pod = get_pod(uid)
            if pod is not None and is_waiting(pod):
                refusal.is_known = True
                yield pod, refusal
            elif pod is not None or refusal.is_known or now - refusal.rejected_at > UNKNOWN_POD_SECONDS:
                self._rejections.pop(uid, None)


def is_waiting(pod: Pod) -> bool:
    """Whether it asks for memory and has no node yet."""
    return pod.request is not None and not (pod.node_name or pod.is_terminating or pod.is_finished)
