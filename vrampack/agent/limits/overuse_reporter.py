"""Reports containers above a limit that is only watched: by an event, and on the Node for eviction if the settings say so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.refused_pods import RefusedPodsPublisher
from vrampack.agent.events import AgentEventReason
from vrampack.agent.limits.contract import OverLimit
from vrampack.agent.nvml.errors import DriverError
from vrampack.cards.refused_pods import OVER_LIMIT
from vrampack.kube.events import EventRecorder

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 15.0


class OveruseReporter:
    """Checks every few seconds for containers above their limits."""

    def __init__(
        self,
        list_over_limit: Callable[[], Awaitable[tuple[OverLimit, ...]]],
        publisher: RefusedPodsPublisher,
        events: EventRecorder,
        *,
        find_pod: Callable[[str], LocalPod | None],
    ) -> None:
        self._list_over_limit = list_over_limit
        self._publisher = publisher
        self._events = events
        self._find_pod = find_pod
        self._named: dict[str, str] = {}

    async def run(self) -> None:
        """Report periodically, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            try:
                await self.report_overuse()
            except DriverError as error:
                log.debug("usage not measured error=%s", error)
            except Exception:  # tenants choose the names in it: a bad one must not end the reports
                log.exception("overuse not reported")

    async def report_overuse(self) -> None:
        """One round. Raises `DriverError`; then no pod is known to be over its limit now, and none is named."""
        named: dict[str, str] = {}
        staying: dict[str, str] = {}
        try:
            found = await self._list_over_limit()
        except DriverError:
            self._set_named({})
            raise
        for over in found:
            pod = self._find_pod(over.pod_uid)
            if pod is not None:
                text = f"container {over.container} uses {over.used_mib} MiB of card {over.uuid}, but its limit is {over.limit_mib} MiB"
                self._events.record_pod_event(pod.pod, AgentEventReason.OVER_LIMIT, text)
                if over.should_evict:
                    is_replaceable = pod.is_controlled and not pod.is_static
                    (named if is_replaceable else staying)[over.pod_uid] = OVER_LIMIT
        named |= staying  # last: pods that are not evicted must not fill the list
        for uid in named.keys() - self._named.keys():
            log.warning("pod over its limit named uid=%s", uid)
        self._set_named(named)

    def forget_pod(self, uid: str) -> None:
        """It is gone."""
        if uid in self._named:
            self._set_named({each: reason for each, reason in self._named.items() if each != uid})

    def _set_named(self, named: dict[str, str]) -> None:
        self._named = named
        self._publisher.set_reasons("use", named)
