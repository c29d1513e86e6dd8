"""The pods that wait for a node, and when each may be tried next. No clock of its own, no await.

    put --> ready --pop--> tried --refuse--> parked --wake--> backing off, may be early
                             '-----fail----> backing off                   (1 s doubling to 10 s)

Ready pods go by priority, then by the time they came or came back. Only when none is ready, a woken pod is tried
before its back-off is over, the one whose back-off ends soonest first (whole seconds, then priority): so a refused
pod is tried at once after a change, and yet behind those that have not just failed. A pod whose attempt ended in
an error sits its back-off out. A parked pod that nothing wakes is tried again after five minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vrampack.simulator.kinds import Object

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 10.0
PARKED_SECONDS = 300.0
"""All three are kube-scheduler's defaults."""
MOST_DOUBLINGS = 4
"""1, 2, 4, 8, and 16 is more than the longest."""


@dataclass(slots=True, eq=False)
class Entry:
    """One waiting pod."""

    uid: str
    namespace: str
    name: str
    priority: int
    turn: int
    """Smaller came earlier."""
    refusals: int = 0
    errors: int = 0
    ready_at: float = 0.0
    backoff_until: float = 0.0
    may_be_early: bool = False
    popped_at: int = 0


class Queue:
    """All waiting pods. `now` is seconds of any one clock."""

    def __init__(self) -> None:
        self._waiting: dict[str, Entry] = {}
        self._turns = 0
        self._wakes = 0

    def put(self, pod: Object) -> None:
        """A pod that is new, or has changed: then a refused one is tried again. Not for one that is being tried."""
        metadata = pod["metadata"]
        uid = metadata["uid"]
        if uid in self._waiting:
            _wake(self._waiting[uid])
        else:
            priority = pod["spec"].get("priority") or 0
            self._waiting[uid] = Entry(uid, metadata["namespace"], metadata["name"], priority, self._next_turn())

    def remove(self, uid: str) -> None:
        """The pod is gone, bound, or not to be scheduled now."""
        self._waiting.pop(uid, None)

    def pop(self, now: float) -> Entry | None:
        """The pod to try now. It is out, unless `refuse` or `fail` puts it back."""
        entry = self._next(now)
        if entry is not None:
            del self._waiting[entry.uid]
            entry.popped_at = self._wakes
        return entry

    def refuse(self, entry: Entry, now: float) -> None:
        """No node fits: wait for a change, unless there was one while the pod was tried."""
        entry.refusals, entry.errors = entry.refusals + 1, 0
        entry.ready_at, entry.may_be_early = now + PARKED_SECONDS, False
        self._put_back(entry, now, failures=entry.refusals)
        if entry.popped_at != self._wakes:
            _wake(entry)

    def fail(self, entry: Entry, now: float) -> None:
        """The attempt broke: again after back-off, and no sooner."""
        entry.errors += 1
        self._put_back(entry, now, failures=entry.errors)
        entry.ready_at, entry.may_be_early = entry.backoff_until, False

    def wake_all(self) -> None:
        """Something changed that may make room for anybody."""
        self._wakes += 1
        for entry in self._waiting.values():
            _wake(entry)

    def next_at(self) -> float | None:
        """When `pop` will next have something, if nothing changes."""
        return min((entry.ready_at for entry in self._waiting.values()), default=None)

    def _next(self, now: float) -> Entry | None:
        ready = [entry for entry in self._waiting.values() if entry.ready_at <= now]
        if ready:
            return min(ready, key=lambda entry: (-entry.priority, entry.turn))
        early = [entry for entry in self._waiting.values() if entry.may_be_early]
        return min(early, key=lambda entry: (math.floor(entry.ready_at), -entry.priority, entry.turn), default=None)

    def _put_back(self, entry: Entry, now: float, *, failures: int) -> None:
        entry.turn = self._next_turn()
        entry.backoff_until = now + _backoff_seconds(failures)
        self._waiting[entry.uid] = entry

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns


def _backoff_seconds(failures: int) -> float:
    doublings = min(failures - 1, MOST_DOUBLINGS)  # failures are counted for as long as the pod waits
    return min(FIRST_BACKOFF_SECONDS * 2.0**doublings, LONGEST_BACKOFF_SECONDS)


def _wake(entry: Entry) -> None:
    """A parked pod may be tried; one that backs off after an error (or is woken already) stays as it is."""
    if entry.ready_at > entry.backoff_until:
        entry.ready_at, entry.may_be_early = entry.backoff_until, True
