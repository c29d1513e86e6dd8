"""Which nodes filter refused last for each waiting pod: nodes that passed the scheduler's own filters, and failed by cards alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from extender.requeue.activator import PodActivator
from extender.state.ledger import Ledger
from vrampack.cards.pod import Pod

MAX_CALLS = 64
"""Each has up to thousands of node names. Pods of the highest priorities are remembered, and of those the oldest."""
MAX_LEFT_OUT = 4096
"""Pods for which none may be evicted. One more, and the first is looked at again."""
MAX_AGE_SECONDS = 330.0
"""The scheduler tries every pod again after five minutes: what it said before that is no longer its word."""


@dataclass(slots=True)
class RefusedCall:
    """The last call of filter that let no node pass for this pod."""

    names: Collection[str]
    refused_at: float
    waits_since: float
    """When filter first refused the pod and has let no node pass since."""


class RefusedCalls:
    """Listens to filter before the activator does."""

    def __init__(self, activator: PodActivator, ledger: Ledger, *, clock: Callable[[], float]) -> None:
        self._activator = activator
        self._ledger = ledger
        self._clock = clock
        self._calls: dict[str, RefusedCall] = {}
        self._left_out: dict[str, str] = {}
        """By uid, the version of the pod for which none may be evicted."""

    def __contains__(self, uid: str) -> bool:
        """Whether filter let no node pass for this pod when it was asked last."""
        return uid in self._calls

    def get_refused_at(self, uid: str) -> float | None:
        """When filter refused this pod last; None if it let a node pass since, or is not known to have been asked."""
        call = self._calls.get(uid)
        return None if call is None else call.refused_at

    def on_filter_called(self, scheduler_name: str) -> None:
        self._activator.on_filter_called(scheduler_name)

    def on_filter_answered(self, uid: str, names: Collection[str], *, fits: bool, for_group: bool = False) -> None:
        if fits:
            self._calls.pop(uid, None)
        elif not self._is_left_out(uid):
            now, known = self._clock(), self._calls.get(uid)
            self._calls[uid] = RefusedCall(names, now, now if known is None else known.waits_since)
            if len(self._calls) > 2 * MAX_CALLS:
                self._forget_less_urgent()
        self._activator.on_filter_answered(uid, names, fits=fits, for_group=for_group)

    def leave_out(self, pod: Pod) -> None:
        """Forget the calls for this pod until it changes: it would take the place of one that can be helped."""
        self._calls.pop(pod.uid, None)
        self._left_out[pod.uid] = pod.resource_version
        if len(self._left_out) > MAX_LEFT_OUT:
            del self._left_out[next(iter(self._left_out))]

    def _is_left_out(self, uid: str) -> bool:
        pod = self._ledger.get_pod(uid)
        if pod is not None and self._left_out.get(uid) != pod.resource_version:
            self._left_out.pop(uid, None)
        return uid in self._left_out

    def list_waiting(self) -> Iterator[tuple[Pod, RefusedCall]]:
        """The waiting pods whose last refusal still counts, the most urgent first."""
        self._forget_less_urgent()
        for uid, call in self._calls.items():
            pod = self._ledger.get_pod(uid)
            if pod is not None and pod.is_waiting and self._clock() - call.refused_at <= MAX_AGE_SECONDS:
                yield pod, call

    def _forget_less_urgent(self) -> None:
        """Forget resolved pods. A pod that the ledger has not been shown yet comes last."""
        kept = sorted(self._calls.items(), key=lambda item: self._rank_pod(item[0]))
        self._calls = {uid: call for uid, call in kept[:MAX_CALLS] if self._rank_pod(uid)[0] != _RESOLVED}

    def _rank_pod(self, uid: str) -> tuple[int, int, str, str]:
        pod = self._ledger.get_pod(uid)
        if pod is None:
            return _UNKNOWN, 0, "", uid
        waiting = _WAITING if pod.group is None else _IN_GROUP
        return (waiting if pod.is_waiting else _RESOLVED), -pod.priority, pod.created_at, uid


_WAITING, _IN_GROUP, _UNKNOWN, _RESOLVED = range(4)
"""Pods of groups come after other waiting pods: the extender only says why it evicts none for them."""
