"""Notices another extender that binds pods while this one does: nothing but the scheduler's lease keeps two from doing so.

The watch shows Bindings in the order in which they were written. A pod that it shows bound, with a record, was bound by this
process if this process holds a reservation for it there, else by another one. Turns tell what that means:

    another --> this                   this process's scheduler has become the leader
    this --> another                   another one has; in a rolling update a process sees both changes
    .. --> a late Binding --> ..       two turns more, when a paused process goes on
    four turns within 45 s             two write at once

A Binding sent before a change may land after the first one of the new leader, so what follows a turn at once is no turn.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from extender.events import EventReason
from extender.metrics import ExtenderMetrics
from extender.state.ledger import Ledger
from vrampack.cards.pod import Pod
from vrampack.kube.events import EventRecorder

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
"""How long after a turn Bindings of the writer before it may still land: a bind has 3 s."""
TURNS = 4
"""One more than a change of leader with a late Binding after it."""
WINDOW_SECONDS = 45.0
"""From the first of them to the last. A scheduler that is killed keeps its lease for 15 s, so four such changes take longer."""


class BindingWriters:
    """Is shown every pod that the watch shows, before the ledger is."""

    def __init__(
        self,
        ledger: Ledger,
        events: EventRecorder,
        metrics: ExtenderMetrics,
        own_pod: Pod | None,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._found = metrics.second_extender
        self._own_pod = own_pod
        """The pod that gets the event; None: no event."""
        self._clock = clock
        self._is_own_turn: bool | None = None
        """None before the first Binding."""
        self._turned_at = 0.0
        self._turns: deque[float] = deque(maxlen=TURNS)
        """When the last of them began."""

    def observe_pod(self, pod: Pod) -> None:
        """The watch shows the pod, which is a Binding if the ledger knows it unbound."""
        known = self._ledger.get_pod(pod.uid)
        if known is None or known.node_name or not pod.node_name or pod.record is None:
            return
        is_own, now = self._ledger.places.get_reservation_on(pod.uid, pod.node_name) is not None, self._clock()
        if self._is_own_turn is None:
            self._is_own_turn, self._turned_at = is_own, now
        elif is_own is not self._is_own_turn and now - self._turned_at >= SETTLE_SECONDS:
            self._is_own_turn, self._turned_at = is_own, now
            self._count_turn(pod, now)

    def _count_turn(self, pod: Pod, now: float) -> None:
        self._turns.append(now)
        if len(self._turns) == TURNS and now - self._turns[0] <= WINDOW_SECONDS:
            self._turns.clear()
            self._report(pod)

    def _report(self, pod: Pod) -> None:
        self._found.inc()
        text = (
            f"another extender binds pods while this one does: {TURNS} turns within {WINDOW_SECONDS:.0f} s. Both give the same "
            "memory away; stop one of them"
        )
        log.error("second extender found pod=%s node=%s problem=%s", pod, pod.node_name, text)
        if self._own_pod is not None:
            self._events.record_changing_event(self._own_pod, EventReason.SECOND_EXTENDER, text, is_warning=True)
