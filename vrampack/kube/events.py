"""Events on pods and nodes: few, not repeated soon, and written without delaying the caller.

Recording an event puts it into a queue; a task writes it. There is at most one per object and reason in five minutes (and per
card, if it is about one), and at most ten a second in all; dropped events are counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from cachetools import TTLCache

from vrampack.cards.pod import Pod
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.timestamps import format_time

log = logging.getLogger(__name__)

REPEAT_SECONDS = 300
EVENTS_PER_SECOND = 10
TOKENS_FOR_WARNINGS = 5
"""How many of those ten are for warnings: a burst of successful binds must not drown out the one that failed."""
QUEUE_LENGTH = 1000
RECENT_EVENTS_KEPT = 50_000
WRITE_TIMEOUT_SECONDS = 5.0
MAX_MESSAGE_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class _Event:
    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    text: str
    is_warning: bool
    about: int | str | None = None
    """Distinguishes events of one reason: the card that it is about, or its text."""

    @property
    def key(self) -> tuple[str, str, int | str | None]:
        """Two events with one key are the same event, even if their texts differ."""
        return self.uid, self.reason, self.about


class EventRecorder:
    """Queues events and writes them in the background."""

    def __init__(
        self,
        api: Api,
        *,
        component: str,
        on_dropped: Callable[[str], None],
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """`on_dropped` is called with the cause of each dropped event: `failed`, `repeated` or `rate`."""
        self._api = api
        self._component = component
        self._on_dropped = on_dropped
        self._now = now
        self._clock = clock
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(QUEUE_LENGTH)
        self._recent: TTLCache[tuple[str, str, int | str | None], bool] = TTLCache(
            RECENT_EVENTS_KEPT, REPEAT_SECONDS, timer=clock
        )
        self._tokens = float(EVENTS_PER_SECOND)
        self._filled_at = clock()
        self._written = 0

    def record_pod_event(self, pod: Pod, reason: str, text: str, *, is_warning: bool = True) -> None:
        self._enqueue(_Event("Pod", pod.namespace, pod.name, pod.uid, reason, text, is_warning))

    def record_changing_event(self, pod: Pod, reason: str, text: str, *, is_warning: bool) -> None:
        """Record an event on the pod; another text is another event."""
        self._enqueue(_Event("Pod", pod.namespace, pod.name, pod.uid, reason, text, is_warning, about=text))

    def record_node_event(
        self, name: str, reason: str, text: str, *, card: int | None = None, is_warning: bool = True
    ) -> None:
        self._enqueue(_Event("Node", "default", name, name, reason, text, is_warning, about=card))

    async def run(self) -> None:
        """Write what is queued, until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._api.create_event(
                    event.namespace, self._build_event(event), timeout_seconds=WRITE_TIMEOUT_SECONDS
                )
            except (RefusedError, NoAnswerError) as error:
                self._on_dropped("failed")
                log.warning(
                    "event not written reason=%s object=%s/%s error=%s",
                    event.reason,
                    event.namespace,
                    event.name,
                    error,
                )
            finally:
                self._queue.task_done()

    async def wait_until_written(self) -> None:
        """Wait until everything queued so far is written or dropped; `run` must be running."""
        await self._queue.join()

    def _enqueue(self, event: _Event) -> None:
        if event.key in self._recent:
            self._on_dropped("repeated")
        elif not self._take_token(held_back=0 if event.is_warning else TOKENS_FOR_WARNINGS):
            self._on_dropped("rate")
        else:
            self._recent[event.key] = True
            self._queue.put_nowait(event)

    def _take_token(self, *, held_back: int) -> bool:
        """Take from a bucket of one second's events, leaving `held_back` for warnings; false if that fails or the queue is full."""
        now = self._clock()
        self._tokens = min(float(EVENTS_PER_SECOND), self._tokens + (now - self._filled_at) * EVENTS_PER_SECOND)
        self._filled_at = now
        if self._tokens < 1 + held_back or self._queue.full():
            return False
        self._tokens -= 1
        return True

    def _build_event(self, event: _Event) -> dict[str, object]:
        self._written += 1
        at = self._now()
        stamp = format_time(at)
        involved = {"apiVersion": "v1", "kind": event.kind, "name": event.name, "uid": event.uid}
        if event.kind == "Pod":
            involved["namespace"] = event.namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{event.name[:200]}.{int(at * 1e9):x}.{self._written:x}",
                "namespace": event.namespace,
            },
            "involvedObject": involved,
            "reason": event.reason,
            "message": event.text[:MAX_MESSAGE_CHARACTERS],
            "type": "Warning" if event.is_warning else "Normal",
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
