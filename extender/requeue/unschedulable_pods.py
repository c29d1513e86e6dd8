"""The pods that filter rejected: which capacity they have seen, and for which nodes their activation failed.

A pod that was rejected at capacity generation 7 can only fit capacity gained after that. A pod that passes filter, is bound
or is gone no longer waits; if its bind fails, the scheduler itself retries it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from vrampack.backoff import Backoff
from vrampack.cards.pod import Pod

BACKOFF = Backoff(first_seconds=5.0, longest_seconds=300.0)
MAX_UNSCHEDULABLE_PODS = 65_536
"""Beyond that the oldest rejection is forgotten: calls of filter with made-up pods must not fill the memory."""
UNKNOWN_POD_SECONDS = 300.0
"""How long a rejected pod may be unknown to the ledger: longer than the ledger may be stale."""
FLUSH_SECONDS = 290.0
"""The scheduler flushes unschedulable pods after 300 s: only that flush brings back a pod that waited longer than this."""


@dataclass(slots=True)
class Rejection:
    """What is known of one rejected pod."""

    seen_generation: int
    """The capacity generation of its last rejection."""
    rejected_at: float
    is_known: bool = False
    """The ledger has known it at least once."""
    placeable_since: float | None = None
    """When a place was first found for it since that rejection."""
    is_activated: bool = False
    """Activated since that rejection."""
    failures: int = 0
    backs_off_until: float = 0.0
    """Until then it is not activated for a node of `avoided_nodes`."""
    avoided_nodes: frozenset[str] = frozenset()
    waits_for_group: bool = False
    """It was refused because too few pods of its group find cards."""
    retry_at: float = 0.0
    """The API server failed to take its activation, which is not retried before then."""

    def back_off_node(self, node_name: str, now: float) -> None:
        """It was activated for this node and not bound there."""
        self.avoided_nodes = self.avoided_nodes | {node_name} if now < self.backs_off_until else frozenset({node_name})
        self.failures += 1
        self.backs_off_until = now + BACKOFF.compute_seconds(self.failures)


class UnschedulablePods:
    """Rejections by pod uid, the oldest first."""

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

    def reject_pod(self, uid: str, capacity_generation: int, now: float) -> Rejection:
        """Filter rejected the pod, knowing all capacity gained up to this generation."""
        known = self._rejections.pop(uid, None)
        self._rejections[uid] = rejection = Rejection(capacity_generation, now)
        if known is not None:
            rejection.is_known, rejection.failures, rejection.backs_off_until, rejection.avoided_nodes = (
                known.is_known,
                known.failures,
                known.backs_off_until,
                known.avoided_nodes,
            )
            rejection.retry_at = known.retry_at
        elif len(self._rejections) > MAX_UNSCHEDULABLE_PODS:
            del self._rejections[next(iter(self._rejections))]
        return rejection

    def admit_pod(self, uid: str, now: float) -> bool:
        """The pod passed filter. True when only the scheduler's flush can have made the scheduler ask."""
        known = self._rejections.pop(uid, None)
        return (
            known is not None
            and not known.is_activated
            and known.placeable_since is not None
            and now - known.placeable_since > FLUSH_SECONDS
        )

    def find_overdue_since(self, get_pod: Callable[[str], Pod | None]) -> float | None:
        """Since when the pod that has waited longest for its activation has had a place; None when no pod waits."""
        return min(
            (
                rejection.placeable_since
                for uid, rejection in self._rejections.items()
                if rejection.placeable_since is not None
                and not rejection.is_activated
                and (pod := get_pod(uid)) is not None
                and pod.is_waiting
            ),
            default=None,
        )

    def drop_resolved_pods(self, get_pod: Callable[[str], Pod | None], now: float) -> Iterator[tuple[Pod, Rejection]]:
        """The pods that the ledger shows as unbound; forgets those that are bound or gone."""
        for uid, rejection in list(self._rejections.items()):
            pod = get_pod(uid)
            if pod is not None and pod.is_waiting:
                rejection.is_known = True
                yield pod, rejection
            elif pod is not None or rejection.is_known or now - rejection.rejected_at > UNKNOWN_POD_SECONDS:
                self._rejections.pop(uid, None)
