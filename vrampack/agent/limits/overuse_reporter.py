"""Containers above a limit that is only watched: reported on the pod, and evicted when the settings say so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from vrampack.agent.cluster.eviction import EVICT_CALL_SECONDS, PodEvictor
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.events import AgentEventReason
from vrampack.agent.limits.contract import OverLimit
from vrampack.agent.nvml.errors import DriverError
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.events import EventRecorder

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 15.0


class OveruseReporter:
    """Looks every few seconds for containers above their limits."""

    def __init__(
        self,
        list_over_limit: Callable[[], Awaitable[tuple[OverLimit, ...]]],
        api: PodEvictor,
        events: EventRecorder,
        *,
        find_pod: Callable[[str], LocalPod | None],
        on_evicted: Callable[[], None],
    ) -> None:
        self._list_over_limit = list_over_limit
        self._api = api
        self._events = events
        self._find_pod = find_pod
        self._on_evicted = on_evicted
        self._evicted_uids: set[str] = set()
        """Pods whose eviction was accepted: they may take their time to end."""

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            try:
                await self.report_overuse()
            except DriverError as error:
                log.debug("usage not measured error=%s", error)
            except Exception:  # what is looked at has names that tenants choose: one of them stops no other's report
                log.exception("overuse not reported")

    async def report_overuse(self) -> None:
        """One round. Raises `DriverError`."""
        for over in await self._list_over_limit():
            pod = self._find_pod(over.pod_uid)
            if pod is not None:
                text = f"container {over.container} uses {over.used_mib} MiB of card {over.uuid}, its limit is {over.limit_mib} MiB"
                self._events.record_pod_event(pod.pod, AgentEventReason.OVER_LIMIT, text)
                if over.should_evict and over.pod_uid not in self._evicted_uids:
                    await self._evict(pod, text)

    def forget_pod(self, uid: str) -> None:
        self._evicted_uids.discard(uid)

    async def _evict(self, pod: LocalPod, text: str) -> None:
        uid = pod.pod.uid
        try:
            await self._api.evict(pod.pod.namespace, pod.pod.name, uid, timeout_seconds=EVICT_CALL_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            log.warning("pod not evicted pod=%s uid=%s error=%s", pod.pod, uid, error)
            return
        self._evicted_uids.add(uid)
        self._on_evicted()
        log.warning("pod evicted cause=over_limit pod=%s uid=%s", pod.pod, uid)
        self._events.record_pod_event(pod.pod, AgentEventReason.EVICTED, text)
