"""Containers over their limit, where nobody holds it (`watch`): said on the pod, and evicted when the settings say so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from vrampack.agent.events import AgentReason
from vrampack.agent.limits.watch import Over
from vrampack.agent.localpod import LocalPod
from vrampack.agent.nvml.errors import DriverError
from vrampack.agent.refusals import EVICT_CALL_SECONDS, Evicting
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.events import EventRecorder

log = logging.getLogger(__name__)

LOOK_SECONDS = 15.0


class Overuse:
    """Looks every few seconds at who is over."""

    def __init__(
        self,
        look: Callable[[], Awaitable[tuple[Over, ...]]],
        api: Evicting,
        events: EventRecorder,
        *,
        pod_of: Callable[[str], LocalPod | None],
        evicted: Callable[[], None],
    ) -> None:
        self._look = look
        self._api = api
        self._events = events
        self._pod_of = pod_of
        self._evicted = evicted
        self._asked: set[str] = set()
        """Pods whose eviction was taken: they may need their time to end."""

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except DriverError as error:
                log.debug("use not measured error=%s", error)

    async def look(self) -> None:
        """One round. Raises `DriverError`."""
        for over in await self._look():
            pod = self._pod_of(over.pod_uid)
            if pod is not None:
                text = f"container {over.container} uses {over.used_mib} MiB of card {over.uuid}, its limit is {over.limit_mib} MiB"
                self._events.record_pod_event(pod.pod, AgentReason.OVER_LIMIT, text)
                if over.is_to_evict and over.pod_uid not in self._asked:
                    await self._evict(pod, text)

    def ended(self, uid: str) -> None:
        self._asked.discard(uid)

    async def _evict(self, pod: LocalPod, text: str) -> None:
        uid = pod.pod.uid
        try:
            await self._api.evict(pod.pod.namespace, pod.pod.name, uid, timeout_seconds=EVICT_CALL_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            log.warning("pod not evicted pod=%s uid=%s error=%s", pod.pod, uid, error)
            return
        self._asked.add(uid)
        self._evicted()
        log.warning("evicted a pod over its limit pod=%s uid=%s", pod.pod, uid)
        self._events.record_pod_event(pod.pod, AgentReason.EVICTED, text)
