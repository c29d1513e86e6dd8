"""The agent of a host without Kubernetes, wired together: no API server, no kubelet.

    discovery --cards--> host limits <--question-- vrampack-hook <-- container runtime
                         host limits --> host containers (by cgroup; files in /run) , back end

Limits are enforced by `native` if the driver can, else by `kmod` if the kernel module is there, else by `preload`, whose library
the hook mounts. Until the back end has started no container with a limit may start: it waits a moment, and is told why.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vrampack.agent.host.containers import HostContainers
from vrampack.agent.host.limits import HostLimits
from vrampack.agent.inventory.discovery import Discovery
from vrampack.agent.inventory.discovery_settings import build_discovery_settings
from vrampack.agent.limits.accounting import UsageTotals
from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.back_ends import BACK_ENDS
from vrampack.agent.limits.cgroups import CgroupTree
from vrampack.agent.limits.contract import BackEnd
from vrampack.agent.limits.detection import ToolkitState
from vrampack.agent.limits.enforcement import Enforcement
from vrampack.agent.limits.errors import ImpossibleBackEndError, LimitError
from vrampack.agent.limits.hook_server import HookQuestion, HookServer
from vrampack.agent.limits.node_context import NodeContext, NodePaths
from vrampack.agent.metrics import AgentMetrics, AgentSnapshot, CardSample, ContainerSample, ProcessSample
from vrampack.agent.nvml.driver import GpuDriver, Xid
from vrampack.agent.nvml.errors import DriverError
from vrampack.agent.settings import AgentConfiguration
from vrampack.agent.status.http import StatusPages, serve_status
from vrampack.agent.status.schema import LimitsStatus
from vrampack.agent.status.status import build_limits_status
from vrampack.cards.node import CardFacts
from vrampack.cards.units import MIB

log = logging.getLogger(__name__)

MEASURE_SECONDS = 15.0
"""A usual scrape interval."""
SWEEP_SECONDS = 5.0
"""Ended containers are forgotten within this time; a new one that needs their memory checks for itself first."""
START_RETRY_SECONDS = 5.0
"""Between two attempts to start the hook's socket and the back end: a file system may be full, and is emptied later."""
RESTORE_WAIT_SECONDS = 3.0
"""How long a container waits that is created while the agent starts; the hook is answered within 4 s (limits/hook_server.py)."""


class StandaloneAgent:
    """One running agent of a host. `host` is its name, for people."""

    def __init__(
        self,
        settings: AgentConfiguration,
        metrics: AgentMetrics,
        driver: GpuDriver,
        *,
        host: str,
        node_paths: NodePaths | None = None,
        back_ends: Sequence[BackEndRow] = BACK_ENDS,
    ) -> None:
        self._settings = settings
        self._host = host
        self._metrics = metrics
        self._driver = driver
        self._back_ends = back_ends
        self._stopping = asyncio.Event()
        self._has_cards = asyncio.Event()
        self._limits_ready = asyncio.Event()
        self._failure: Exception | None = None
        paths = node_paths or NodePaths()
        cgroups = CgroupTree(paths.cgroup_mount)
        may_overcommit = settings.standalone.overcommit == "allow"
        self._host_containers = HostContainers(paths.containers, cgroups, may_overcommit=may_overcommit)
        self._discovery = Discovery(
            driver,
            build_discovery_settings(settings),
            is_card_held=lambda uuid: self._host_containers.sum_limits_mib(uuid) > 0,
            on_xid=self._count_xid,
            on_driver_error=metrics.driver_errors.inc,
        )
        self._context = NodeContext(
            paths,
            cgroups,
            driver,
            self._discovery,
            self._host_containers,
            settings.watch,
            settings.kmod,
            time.monotonic,
        )
        self._enforcement = Enforcement(settings.enforcement, self._context, rows=back_ends)
        self._hook_server = HookServer(paths.hook_socket, self._answer_hook)
        self._start_problem = ""
        """Why the hook's socket or the back end could not be started at the last attempt."""
        self._limits_problem = ""
        """Why the back end cannot enforce a new limit now."""
        self._host_limits: HostLimits | None = None
        """None until limits can be enforced: until then no container with a limit may start."""
        self._used_by_card: Mapping[str, int] = {}
        self._container_usage: Mapping[tuple[str, str, str], UsageTotals] | None = None
        """Totals by container key, id and card; None while nothing was measured."""
        metrics.register_snapshot(self._take_snapshot)

    async def run(self) -> None:
        """Serve until `stop`. Raises `ImpossibleBackEndError`, and `OSError` for addresses that are taken."""
        pages = StatusPages(self._metrics, self.find_unready_reason, self._build_limits_status)
        status_server = serve_status(self._settings, pages)
        async with status_server, asyncio.TaskGroup() as group:
            work = (
                self._discovery.run(self._on_cards_changed),
                self._serve(),
                self._reconcile_forever(),
                self._measure_forever(),
            )
            background = [group.create_task(task) for task in work]
            await self._stopping.wait()
            for task in background:
                task.cancel()
        if self._failure is not None:
            raise self._failure
        log.info("stopped")

    def stop(self) -> None:
        """Begin a clean stop. Containers keep what they hold, and the next agent knows about it."""
        self._stopping.set()

    def find_unready_reason(self) -> str:
        """Why no container with a limit could start here now; empty when all is well."""
        if self._stopping.is_set():
            return "stopping"
        if self._host_limits is not None:
            return self._limits_problem
        if self._start_problem:
            return self._start_problem
        why = self._discovery.problem or (
            "the limits of running containers are being restored" if self._has_cards.is_set() else ""
        )
        return f"the cards of this host are not known yet{': ' * bool(why)}{why}"

    async def _serve(self) -> None:
        """Retry until the start succeeds, then serve until cancelled."""
        try:
            while self._host_limits is None:
                try:
                    self._host_limits = await self._start_limits()
                except OSError as error:
                    log.error("limits not started error=%s", error)  # noqa: TRY400 - a fault of the host, no traceback
                    self._start_problem = f"limits cannot be put in force: {error}"
                    await asyncio.sleep(START_RETRY_SECONDS)
            self._limits_ready.set()
            await asyncio.Event().wait()
        except ImpossibleBackEndError as error:
            self._failure = error
            self.stop()
        finally:
            await self._hook_server.stop()
            self._enforcement.stop()

    async def _start_limits(self) -> HostLimits:
        """Listen at once, so that every hook is answered; allow starts once the limits of running containers are applied."""
        for folder in (self._context.paths.hook_socket.parent, *self._list_host_folders()):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not self._hook_server.is_listening:
            await self._hook_server.start()
        self._host_containers.restore_running()
        self._start_problem = ""
        await self._has_cards.wait()
        limits = HostLimits(
            self._context.cgroups,
            self._host_containers,
            await self._start_back_end(),
            cards=lambda: self._discovery.cards,
            find_presence=self._discovery.find_presence,
        )
        await self._reconcile()
        await limits.restore_limits()
        return limits

    def _list_host_folders(self) -> Iterable[Path]:
        return (folder for row in self._back_ends for folder in row.host_folders)

    async def _start_back_end(self) -> BackEnd:
        """Raises `ImpossibleBackEndError` also where limits could only be watched, and `OSError`."""
        # Only our hook reports containers; the toolkit's does not read our variables.
        capabilities = replace(self._context.detect_capabilities(), toolkit=ToolkitState.ABSENT, has_hook=True)
        selection = self._enforcement.select(capabilities)
        if not selection.row.is_enforcing:
            possible = [row.mode for row in self._back_ends if row.is_enforcing]
            text = f"without Kubernetes enforcement is auto, {', '.join(possible[:-1])} or {possible[-1]}"
            raise ImpossibleBackEndError(f"no limit can be enforced: {selection.reason}; {text}")
        return await self._enforcement.start(selection)

    async def _answer_hook(self, question: HookQuestion) -> str:
        if not self._discovery.problem:
            with suppress(TimeoutError):
                async with asyncio.timeout(RESTORE_WAIT_SECONDS):
                    await self._limits_ready.wait()
        if self._host_limits is None:
            raise LimitError(self.find_unready_reason())
        return await self._host_limits.apply_limit(question)

    async def _reconcile_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            if self._host_limits is not None:
                await self._host_limits.release_ended_containers()
                await self._reconcile()

    async def _reconcile(self) -> None:
        problem = await self._enforcement.reconcile_or_explain()
        if problem and problem != self._limits_problem:
            log.error("limits not enforceable problem=%s", problem)
        self._limits_problem = problem

    async def _measure_forever(self) -> None:
        while True:
            try:
                self._used_by_card = {each.uuid: each.used_bytes for each in await self._driver.read_usage()}
                self._container_usage = await self._measure_containers()
            except DriverError as error:
                self._metrics.driver_errors.inc()
                log.debug("usage not measured error=%s", error)
                self._used_by_card, self._container_usage = {}, None
            except Exception:  # tenants choose the names in it: a bad one must not end the measurements
                log.exception("usage not measured")
                self._used_by_card, self._container_usage = {}, None
            await asyncio.sleep(MEASURE_SECONDS)

    async def _measure_containers(self) -> Mapping[tuple[str, str, str], UsageTotals] | None:
        usage = await self._enforcement.measure_usage()
        if usage is None:
            return None
        used: Counter[tuple[str, str, str]] = Counter()
        for row in usage:
            used[row.pod_uid, row.container_id, row.uuid] += row.used_bytes
        return {key: UsageTotals(used_bytes, 0, 0) for key, used_bytes in used.items()}

    def _build_limits_status(self) -> LimitsStatus:
        """The status for `/limits`, with containers by their engine's id, and our own key as the uid."""
        return build_limits_status(
            self._host,
            self._enforcement,
            self._host_containers,
            driver_version=self._discovery.driver_version,
            cards=self._discovery.cards,
        )

    def _take_snapshot(self) -> AgentSnapshot:
        """The snapshot for the metrics page."""
        cards, accounting = self._discovery.cards, self._enforcement.accounting
        return AgentSnapshot(
            cards=tuple(
                CardSample(card, self._count_held_units(card), self._used_by_card.get(card.uuid or ""))
                for card in cards
            ),
            containers=tuple(self._container_samples(cards)),
            enforcement=self._enforcement.mode,
            problem=self.find_unready_reason(),
            hook_answer_counts=self._hook_server.answer_counts,
            processes=tuple(
                ProcessSample("", "", name, count)
                for (_, name), count in sorted(accounting.count_processes().items() if accounting is not None else ())
            ),
        )

    def _count_held_units(self, card: CardFacts) -> int:
        """Rounded up."""
        return -(-self._host_containers.sum_limits_mib(card.uuid or "") * card.units // card.memory_mib)

    def _container_samples(self, cards: Iterable[CardFacts]) -> Iterable[ContainerSample]:
        """One sample for each limit, so that a container that uses nothing has one too."""
        index = {card.uuid: card.index for card in cards}
        accounting = self._enforcement.accounting
        totals = accounting.list_usage_totals() if accounting is not None else self._container_usage
        for each in self._host_containers.list_containers():
            for uuid, mib in sorted(each.limits.items()):
                sample = ContainerSample(uuid, index.get(uuid, -1), "", "", each.id, mib * MIB, None)
                used = (totals or {}).get((each.key, each.owner.container_id, uuid), UsageTotals(0, 0, 0))
                if totals is not None:
                    sample = replace(sample, used_bytes=used.used_bytes)
                if accounting is not None:
                    sample = replace(sample, peak_bytes=used.peak_bytes, refused=used.refused)
                yield sample

    def _on_cards_changed(self) -> None:
        if self._discovery.is_outdated:
            log.error("driver replaced, exiting so that the new library is loaded")
            self.stop()
        if self._discovery.cards:
            self._has_cards.set()

    def _count_xid(self, xid: Xid) -> None:
        self._metrics.xid_errors.labels(xid.uuid or "", str(xid.number)).inc()


async def run_standalone_agent(settings: AgentConfiguration, driver: GpuDriver, *, version: str, host: str) -> None:
    """Run it until SIGTERM or SIGINT. Raises what `StandaloneAgent.run` does."""
    agent = StandaloneAgent(settings, AgentMetrics(version, node=host), driver, host=host)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stop)
    log.info("agent started version=%s host=%s mode=standalone health=%s", version, host, settings.listen.health)
    await agent.run()
