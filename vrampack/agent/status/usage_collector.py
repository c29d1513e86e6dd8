"""The figures about cards and containers on the metrics page: measured every few seconds, never during a scrape."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from vrampack.agent.admission.fence import Fence
from vrampack.agent.admission.pod_workload import PodWorkload
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.pod_cache import PodCache
from vrampack.agent.inventory.advertisement import Advertisement
from vrampack.agent.limits.accounting import UsageTotals
from vrampack.agent.limits.contract import ContainerUsage
from vrampack.agent.limits.enforcement import Enforcement
from vrampack.agent.limits.hook_server import HookServer
from vrampack.agent.limits.utilization_meter import FULL_PERCENT, MeasuredUtilization, UtilizationMeter
from vrampack.agent.metrics import AgentMetrics, AgentSnapshot, CardSample, ContainerSample, ProcessSample
from vrampack.agent.nvml.driver import GpuDriver
from vrampack.agent.nvml.errors import DriverError
from vrampack.agent.status.peak_usage import PeakUsage
from vrampack.cards.card_usage import CardUsage
from vrampack.cards.units import MIB

log = logging.getLogger(__name__)

MEASURE_SECONDS = 15.0
"""A usual scrape interval."""


class UsageCollector:
    """Combines the last measurement with what the agent knows without measuring."""

    def __init__(  # noqa: PLR0913 - each source it asks, by name
        self,
        driver: GpuDriver,
        advertisement: Advertisement,
        fence: Fence,
        pod_cache: PodCache,
        workload: PodWorkload,
        enforcement: Enforcement,
        *,
        hook_server: HookServer,
        metrics: AgentMetrics,
    ) -> None:
        self._driver = driver
        self._advertisement = advertisement
        self._fence = fence
        self._pod_cache = pod_cache
        self._workload = workload
        self._enforcement = enforcement
        self._hook_server = hook_server
        self._metrics = metrics
        self._utilization_meter = UtilizationMeter(driver, workload.find_process_owner)
        self._utilization = MeasuredUtilization()
        self._peaks = PeakUsage()
        self._used_by_card: Mapping[str, int] = {}
        self._container_usage: tuple[ContainerUsage, ...] | None = None
        """None: nothing was measured, which must not look like no use."""

    async def run(self) -> None:
        """Measure periodically, until cancelled."""
        while True:
            try:
                await self.refresh_usage()
            except Exception:  # tenants choose the names in it: a bad one must not end the measurements
                log.exception("usage not measured")
                self._clear_usage()
            await asyncio.sleep(MEASURE_SECONDS)

    async def refresh_usage(self) -> None:
        """Measure once; after a failure no use is shown rather than an old one."""
        try:
            self._used_by_card = {each.uuid: each.used_bytes for each in await self._driver.read_usage()}
            self._container_usage = await self._enforcement.measure_usage()
        except DriverError as error:
            self._metrics.driver_errors.inc()
            log.debug("usage not measured error=%s", error)
            self._clear_usage()
        uids = {pod.pod.uid for pod in self._pod_cache.list_pods()}
        self._peaks.record_usage({key: totals.used_bytes for key, totals in self._usage_totals().items()}, uids)
        await self._refresh_utilization()

    async def _refresh_utilization(self) -> None:
        """Measured separately, so that a driver that hangs here does not lose the memory figures."""
        try:
            self._utilization = await self._utilization_meter.measure_utilization()
        except DriverError as error:
            self._metrics.driver_errors.inc()
            log.debug("utilization not measured error=%s", error)
            self._utilization = MeasuredUtilization()

    def measure_cards(self) -> Mapping[str, CardUsage]:
        """The measured use of each card, by uuid; without cards whose driver did not answer."""
        above: dict[str, int] = {}
        for (_, _, uuid), totals in self._usage_totals().items():
            above[uuid] = above.get(uuid, 0) + max(0, totals.peak_bytes - totals.used_bytes)
        return {
            uuid: CardUsage(_to_mib(used), _to_mib(used + above.get(uuid, 0)), self._utilization.by_card.get(uuid))
            for uuid, used in self._used_by_card.items()
        }

    def take_snapshot(self) -> AgentSnapshot:
        """The snapshot for the metrics page."""
        advertised, held = self._advertisement.current, self._fence.count_held_units()
        return AgentSnapshot(
            cards=tuple(
                CardSample(
                    card,
                    held[card.uuid or ""],
                    self._used_by_card.get(card.uuid or ""),
                    self._utilization.by_card.get(card.uuid or ""),
                )
                for card in advertised.published_cards
            ),
            containers=tuple(self._container_samples()),
            processes=tuple(self._process_samples()),
            enforcement=self._enforcement.mode,
            is_unenforced=self._enforcement.is_unenforced,
            problem=advertised.problem,
            hook_answer_counts=self._hook_server.answer_counts,
            lingering_pods=self._fence.lingering_count,
        )

    def _clear_usage(self) -> None:
        self._used_by_card, self._container_usage, self._utilization = {}, None, MeasuredUtilization()

    def _container_samples(self) -> Iterable[ContainerSample]:
        """One sample for each limit, if there are limits, so that a container that uses nothing has one too."""
        used, asking, busy = self._usage_totals(), self._count_processes(), self._busy_percent()
        index = {card.uuid: card.index for card in self._advertisement.current.cards}
        for pod in self._pod_cache.list_pods():
            # An empty name: all containers of the pod together, if they are counted so.
            unnamed = {name for uid, name, _ in used if uid == pod.pod.uid and not name}
            for name in sorted(pod.started_containers | unnamed):
                limits = self._workload.get_limits_mib(pod.pod.uid, name) or {}
                for uuid in sorted({*limits, *(card for uid, of, card in used if (uid, of) == (pod.pod.uid, name))}):
                    found = index.get(uuid, -1), limits.get(uuid), used, asking
                    sample = self._container_sample(pod, name, uuid, found)
                    is_told = bool(name) and uuid in self._utilization.by_card
                    percent = busy.get((pod.pod.uid, name, uuid), 0) if is_told else None
                    yield replace(sample, sm_percent=percent)

    def _container_sample(
        self,
        pod: LocalPod,
        name: str,
        uuid: str,
        found: tuple[int, int | None, Mapping[tuple[str, str, str], UsageTotals], Mapping[tuple[str, str], int]],
    ) -> ContainerSample:
        index, limit_mib, used, asking = found
        limit_bytes = None if limit_mib is None else limit_mib * MIB
        totals = used.get((pod.pod.uid, name, uuid), UsageTotals(0, 0, 0))
        use = ContainerSample(uuid, index, pod.pod.namespace, pod.pod.name, name, limit_bytes, totals.used_bytes)
        if self._enforcement.accounting is not None:
            if (pod.pod.uid, name, uuid) not in used and (pod.pod.uid, name) not in asking:
                return replace(use, used_bytes=None)  # it started before the module or library, or bypasses libc
            return replace(use, peak_bytes=totals.peak_bytes, refused=totals.refused)
        if self._container_usage is None:
            return replace(use, used_bytes=None)
        return replace(use, peak_bytes=totals.peak_bytes)

    def _process_samples(self) -> Iterable[ProcessSample]:
        pods = {pod.pod.uid: pod.pod for pod in self._pod_cache.list_pods()}
        for (uid, name), count in sorted(self._count_processes().items()):
            if uid in pods:
                yield ProcessSample(pods[uid].namespace, pods[uid].name, name, count)

    def _count_processes(self) -> Mapping[tuple[str, str], int]:
        """Connected processes by pod uid and container; none if they are not counted."""
        accounting = self._enforcement.accounting
        return accounting.count_processes() if accounting is not None else {}

    def _busy_percent(self) -> Mapping[tuple[str, str, str], int]:
        """Utilization in percent by pod uid, container name and card."""
        busy: dict[tuple[str, str, str], int] = {}
        for (uid, container_id, uuid), percent in self._utilization.by_container.items():
            name = self._workload.get_container_name(uid, container_id)
            if name is not None:
                busy[uid, name, uuid] = min(FULL_PERCENT, busy.get((uid, name, uuid), 0) + percent)
        return busy

    def _usage_totals(self) -> Mapping[tuple[str, str, str], UsageTotals]:
        """Totals by pod uid, container and card: as counted now, or as last measured."""
        if self._enforcement.accounting is not None:
            return self._enforcement.accounting.list_usage_totals()
        used: dict[tuple[str, str, str], int] = {}
        for row in self._container_usage or ():
            name = self._workload.get_container_name(row.pod_uid, row.container_id)
            if name is not None:
                key = row.pod_uid, name, row.uuid
                used[key] = used.get(key, 0) + row.used_bytes
        return {
            key: UsageTotals(used_bytes, self._peaks.get_peak(key, used_bytes=used_bytes), 0)
            for key, used_bytes in used.items()
        }


def _to_mib(used_bytes: int) -> int:
    """Whole MiB, rounded up."""
    return -(-used_bytes // MIB)
