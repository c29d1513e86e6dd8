"""The pending pods, and when each may be tried next. It has no clock and does not await.

    add --> ready --pop--> tried --unschedulable--> parked --activate--> backing off, may skip back-off
                             '------failed-------> backing off                      (1 s doubling to 10 s)

Ready pods are sorted by priority, then by the time they came or came back. If none is ready, an activated pod is tried
before its back-off is over, the one whose back-off ends soonest first (whole seconds, then priority). So a refused pod is
tried at once after a change, but after pods that have not just failed. A pod whose attempt ended in an error waits for its
back-off to end. A parked pod that nothing activates is tried again after five minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vrampack.backoff import Backoff
from vrampack.simulator.resource_kinds import Object

BACKOFF = Backoff(first_seconds=1.0, longest_seconds=10.0)
UNSCHEDULABLE_SECONDS = 300.0
"""Both are kube-scheduler's defaults."""


@dataclass(slots=True, eq=False)
class QueuedPod:
    """One waiting pod."""

    uid: str
    namespace: str
    name: str
    priority: int
    sequence: int
    """Smaller came earlier."""
    unschedulable_count: int = 0
    error_count: int = 0
    ready_at: float = 0.0
    backoff_until: float = 0.0
    may_skip_backoff: bool = False
    activations_at_pop: int = 0


class SchedulingQueue:
    """All waiting pods. `now` is seconds of any one clock."""

    def __init__(self) -> None:
        self._waiting: dict[str, QueuedPod] = {}
        self._last_sequence = 0
        self._activations = 0

    def add_pod(self, pod: Object) -> None:
        """Add a new pod, or activate a queued pod that has changed. Not for a pod that is being tried."""
        metadata = pod["metadata"]
        uid = metadata["uid"]
        if uid in self._waiting:
            _activate(self._waiting[uid])
        else:
            priority = pod["spec"].get("priority") or 0
            self._waiting[uid] = QueuedPod(
                uid, metadata["namespace"], metadata["name"], priority, self._next_sequence()
            )

    def remove_pod(self, uid: str) -> None:
        """Remove a pod that is gone or bound, or that must not be scheduled now."""
        self._waiting.pop(uid, None)

    def pop_pod(self, now: float) -> QueuedPod | None:
        """The pod to try now. It leaves the queue until `requeue_unschedulable` or `requeue_failed` puts it back."""
        entry = self._find_next(now)
        if entry is not None:
            del self._waiting[entry.uid]
            entry.activations_at_pop = self._activations
        return entry

    def requeue_unschedulable(self, entry: QueuedPod, now: float) -> None:
        """No node fits: wait for a change, unless there was one while the pod was tried."""
        entry.unschedulable_count, entry.error_count = entry.unschedulable_count + 1, 0
        entry.ready_at, entry.may_skip_backoff = now + UNSCHEDULABLE_SECONDS, False
        self._requeue(entry, now, failures=entry.unschedulable_count)
        if entry.activations_at_pop != self._activations:
            _activate(entry)

    def requeue_failed(self, entry: QueuedPod, now: float) -> None:
        """The attempt failed with an error: try again after back-off, and no sooner."""
        entry.error_count += 1
        self._requeue(entry, now, failures=entry.error_count)
        entry.ready_at, entry.may_skip_backoff = entry.backoff_until, False

    def activate_all(self) -> None:
        """Activate all pods, as something changed that may make room for any of them."""
        self._activations += 1
        for entry in self._waiting.values():
            _activate(entry)

    def next_attempt_at(self) -> float | None:
        """When `pop_pod` will next return a pod, if nothing changes."""
        return min((entry.ready_at for entry in self._waiting.values()), default=None)

    def _find_next(self, now: float) -> QueuedPod | None:
        ready = [entry for entry in self._waiting.values() if entry.ready_at <= now]
        if ready:
            return min(ready, key=lambda entry: (-entry.priority, entry.sequence))
        early = [entry for entry in self._waiting.values() if entry.may_skip_backoff]
        return min(early, key=lambda entry: (math.floor(entry.ready_at), -entry.priority, entry.sequence), default=None)

    def _requeue(self, entry: QueuedPod, now: float, *, failures: int) -> None:
        entry.sequence = self._next_sequence()
        entry.backoff_until = now + BACKOFF.compute_seconds(failures)
        self._waiting[entry.uid] = entry

    def _next_sequence(self) -> int:
        self._last_sequence += 1
        return self._last_sequence


def _activate(entry: QueuedPod) -> None:
    """Let a parked pod be tried; one that backs off after an error, or is activated already, stays as it is."""
    if entry.ready_at > entry.backoff_until:
        entry.ready_at, entry.may_skip_backoff = entry.backoff_until, True
