"""The pods that filter refused: which room they have not seen yet, and which places were offered to them in vain.

A pod that was refused at room generation 7 can only be let in by room gained after that. Whoever passes filter, is
bound or gone waits no more; a pod that is bound in vain is tried again by the scheduler itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from vrampack.cards.pod import Pod

FIRST_BACKOFF_SECONDS = 5.0
LONGEST_BACKOFF_SECONDS = 300.0
MOST_WAITING = 65_536
"""Beyond that the oldest refusal is forgotten: whoever calls filter with made-up pods must not fill the memory."""
UNKNOWN_SECONDS = 300.0
"""How long a refused pod may be unknown to the ledger: longer than the ledger may be stale."""
FLUSH_SECONDS = 290.0
"""The scheduler tries parked pods again after 300 s, so what waited longer than this was not woken by anybody."""


@dataclass(slots=True)
class Refusal:
    """What is known of one refused pod."""

    since: int
    """The room generation that its last no has seen."""
    at: float
    is_known: bool = False
    """The ledger has shown it at least once."""
    room_at: float | None = None
    """When a place was first laid for it since that no."""
    is_kicked: bool = False
    """Woken since that no."""
    failures: int = 0
    until: float = 0.0
    """It backs off until then: the nodes in `vain` are not offered again before."""
    vain: frozenset[str] = frozenset()

    def back_off(self, node_name: str, now: float) -> None:
        """A place on this node was of no use to it."""
        self.vain = self.vain | {node_name} if now < self.until else frozenset({node_name})
        self.until = now + min(FIRST_BACKOFF_SECONDS * 2.0 ** min(self.failures, 6), LONGEST_BACKOFF_SECONDS)
        self.failures += 1


class Waiting:
    """Refusals by pod uid, the oldest first."""

    def __init__(self) -> None:
        self._refusals: dict[str, Refusal] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._refusals

    def __len__(self) -> int:
        return len(self._refusals)

    def refusals(self) -> Iterable[Refusal]:
        return self._refusals.values()

    def get(self, uid: str) -> Refusal | None:
        return self._refusals.get(uid)

    def refuse(self, uid: str, generation: int, now: float) -> None:
        """Filter said no, knowing all room gained up to this generation."""
        known = self._refusals.pop(uid, None)
        self._refusals[uid] = fresh = Refusal(generation, now)
        if known is not None:
            fresh.is_known, fresh.failures, fresh.until, fresh.vain = (
                known.is_known,
                known.failures,
                known.until,
                known.vain,
            )
        elif len(self._refusals) > MOST_WAITING:
            del self._refusals[next(iter(self._refusals))]

    def admit(self, uid: str, now: float) -> bool:
        """Filter said yes. True when nobody but the scheduler's flush can have brought the pod there."""
        known = self._refusals.pop(uid, None)
        return (
            known is not None
            and not known.is_kicked
            and known.room_at is not None
            and now - known.room_at > FLUSH_SECONDS
        )

    def live(self, pod_of: Callable[[str], Pod | None], now: float) -> Iterator[tuple[Pod, Refusal]]:
        """Those that the ledger shows unbound; what is bound or gone is forgotten."""
        for uid, refusal in list(self._refusals.items()):
            pod = pod_of(uid)
            if pod is not None and is_waiting(pod):
                refusal.is_known = True
                yield pod, refusal
            elif pod is not None or refusal.is_known or now - refusal.at > UNKNOWN_SECONDS:
                self._refusals.pop(uid, None)


def is_waiting(pod: Pod) -> bool:
    """Whether it asks for memory and has no node yet."""
    return pod.ask is not None and not (pod.node_name or pod.is_leaving or pod.is_finished)
