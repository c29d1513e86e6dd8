"""Pods that may not start: writes an event on each, and names them on its own Node if that lasts, or kubelet would retry for ever.

    refused, by PreStart or the hook --publish_after_seconds--> named on the Node
      a later try of that container succeeds, its pod ends, or the refusal no longer holds --> withdrawn

The extender evicts the pods named there, so that the replacement of a pod of a controller finds another place. A bare or
static pod is kept: nothing would create it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.admission.fence import ContainerStart, Fence
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.refused_pods import RefusedPodsPublisher
from vrampack.agent.events import AgentEventReason
from vrampack.agent.kubelet.podresources import DeviceAllocation
from vrampack.cards.node import CardFacts
from vrampack.kube.events import EventRecorder

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 1.0

_Container: TypeAlias = frozenset[str] | str
"""A container of a pod: by its device ids, which are all that kubelet says of it, or by its name, if the hook asked."""
REJECTION_VALID_SECONDS = 330.0
"""kubelet asks again within five minutes: an older refusal may be over."""


@dataclass(frozen=True, slots=True)
class _Rejection:
    """The last of the refusals of one container."""

    start: ContainerStart
    reason: str
    first_at: float
    at: float
    is_by_fence: bool
    """Otherwise to evaluate the start again does not show whether the refusal still holds."""


class PodStatusSource(Protocol):
    """The pods of this node as the watch shows them, see `cluster/pod_cache.py`."""

    def find_pod(self, uid: str) -> LocalPod | None: ...
    def has_ended(self, uid: str) -> bool: ...


class RejectedPods:
    """The pods of which a container is kept waiting, by the fence or by what its start needs."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        fence: Fence,
        events: EventRecorder,
        publisher: RefusedPodsPublisher,
        pods: PodStatusSource,
        *,
        cards: Callable[[], Iterable[CardFacts]],
        clock: Callable[[], float],
        publish_after_seconds: float,
        action: Literal["evict", "keep"],
    ) -> None:
        self._fence = fence
        self._events = events
        self._publisher = publisher
        self._pods = pods
        self._cards = cards
        self._clock = clock
        self._publish_after_seconds = publish_after_seconds
        self._action = action
        self._rejected: dict[str, dict[_Container, _Rejection]] = {}
        """By pod uid; the latest refusal of a pod comes last."""
        self._named: frozenset[str] = frozenset()

    def record_rejection(self, start: ContainerStart, error: RefusedStartError) -> None:
        """Kubelet was told, or no longer waits to be told, that this container may not start."""
        try:
            self._fence.evaluate_start(start, self._cards())
        except RefusedStartError as found:
            if found.reason != "other_node":  # a pod of the same name, which runs elsewhere and must not be evicted
                self._record(start, error, is_by_fence=True)
        else:
            self._record(start, error, is_by_fence=False)

    def withdraw_rejection(self, start: ContainerStart) -> None:
        """Kubelet was told that this container may start. Another one of its pod may still be refused."""
        self._withdraw(start.pod.pod.uid, start.allocation.device_ids)

    def record_hook_refusal(self, pod: LocalPod, container: str, text: str) -> None:
        """The hook was told that this container may not start, after kubelet was told that it may."""
        start = ContainerStart(DeviceAllocation(pod.pod.namespace, pod.pod.name, container, frozenset()), pod)
        self._record(start, RefusedStartError("limit", text), is_by_fence=False)

    def withdraw_hook_refusal(self, uid: str, container: str) -> None:
        """The hook was told that this container may start."""
        self._withdraw(uid, container)

    def forget_pod(self, uid: str) -> None:
        """It is gone."""
        if self._rejected.pop(uid, None) is not None:
            self.publish_pods()

    async def run(self) -> None:
        """Publish them periodically, until cancelled."""
        while True:
            self.publish_pods()
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    def publish_pods(self) -> None:
        """Name on the Node exactly those pods that have waited long enough and still may not start."""
        if self._action == "keep":
            self._publisher.set_reasons("start", {})
            return
        due = [(uid, holding) for uid in self._rejected if self._is_due(holding := self._list_holding(uid))]
        # Those that can be evicted come first, so that pods that stay never fill the list.
        due.sort(key=lambda item: (not _is_replaceable(item[1][-1].start), _get_first_time(item[1]), item[0]))
        for uid, holding in due:
            if uid not in self._named:
                last = holding[-1]
                log.warning("refused pod named pod=%s uid=%s reason=%s", last.start.pod.pod, uid, last.reason)
        self._named = frozenset(uid for uid, _ in due)
        self._publisher.set_reasons("start", {uid: holding[-1].reason for uid, holding in due})

    def _record(self, start: ContainerStart, error: RefusedStartError, *, is_by_fence: bool) -> None:
        """Of several refusals the time of the first counts."""
        pod, now = start.pod.pod, self._clock()
        if self._pods.has_ended(pod.uid):  # nothing would withdraw it
            return
        rejections, container = self._rejected.setdefault(pod.uid, {}), _identify(start)
        before = rejections.pop(container, None)
        is_new = before is None or not (before.is_by_fence or now - before.at < REJECTION_VALID_SECONDS)
        first_at = now if before is None or is_new else before.first_at
        rejections[container] = _Rejection(start, error.reason, first_at, now, is_by_fence)
        name = f"container {start.allocation.container}: " if start.allocation.container else ""
        self._events.record_pod_event(pod, AgentEventReason.START_REFUSED, f"{name}{error.text}")

    def _withdraw(self, uid: str, container: _Container) -> None:
        rejections = self._rejected.get(uid, {})
        if rejections.pop(container, None) is None:
            return
        if not rejections:
            del self._rejected[uid]
        self.publish_pods()

    def _list_holding(self, uid: str) -> list[_Rejection]:
        return [each for each in self._rejected[uid].values() if self._still_holds(each)]

    def _is_due(self, holding: Sequence[_Rejection]) -> bool:
        return bool(holding) and self._clock() - _get_first_time(holding) >= self._publish_after_seconds

    def _still_holds(self, rejection: _Rejection) -> bool:
        """False if its cards are free by now: kubelet's next attempt succeeds. Other refusals last while kubelet keeps asking."""
        watched = self._pods.find_pod(rejection.start.pod.pod.uid)
        if watched is not None and rejection.start.allocation.container in watched.running_containers:
            return False  # kubelet started it without asking
        if not rejection.is_by_fence:
            return self._clock() - rejection.at < REJECTION_VALID_SECONDS
        try:
            self._fence.evaluate_start(rejection.start, self._cards())
        except RefusedStartError:
            return True
        return False


def _identify(start: ContainerStart) -> _Container:
    return start.allocation.device_ids or start.allocation.container


def _get_first_time(rejections: Iterable[_Rejection]) -> float:
    return min(each.first_at for each in rejections)


def _is_replaceable(start: ContainerStart) -> bool:
    return start.pod.is_controlled and not start.pod.is_static
