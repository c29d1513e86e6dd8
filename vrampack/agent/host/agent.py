"""The agent of a host without Kubernetes, wired together: no API server, no kubelet.

    discovery --cards--> host limits <--question-- vrampack-hook <-- container runtime
                         host limits --> tenants (who runs, by cgroup; files in /run) , back end

Who holds the limits is `native` where the driver can, else `kmod` where the kernel module is, else `preload`, whose library
the hook mounts. Until limits are held no container with one may start: it waits a moment, and is told why.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from vrampack.agent.host import containers
from vrampack.agent.host.limits import HostLimits
from vrampack.agent.inventory.discovery import Discovery, build_discovery_settings
from vrampack.agent.limits.accounting import UsageAccounting, UsageTotals
from vrampack.agent.limits.cgroups import CGROUP_MOUNT, CgroupOwner, CgroupTree
from vrampack.agent.limits.contract import BackEnd
from vrampack.agent.limits.detection import ToolkitState, detect_capabilities
from vrampack.agent.limits.errors import ImpossibleBackEndError, LimitError
from vrampack.agent.limits.hook_server import HOOK_SOCKET, HookQuestion, HookServer
from vrampack.agent.limits.kmod.backend import DesiredBudget, KmodBackEnd
from vrampack.agent.limits.kmod.budget_owner import PROC
from vrampack.agent.limits.kmod.preflight import find_preflight_problem
from vrampack.agent.limits.kmod.proc_client import KmodClient, ModuleState
from vrampack.agent.limits.native.backend import NativeByHook
from vrampack.agent.limits.preload import files
from vrampack.agent.limits.preload.backend import PreloadBackEnd, PreloadPaths, ResolvedContainer
from vrampack.agent.limits.preload.decisions import Unresolved
from vrampack.agent.limits.selection import Mechanism, Selection, select_back_end
from vrampack.agent.limits.usage_meter import UsageMeter
from vrampack.agent.metrics import AgentMetrics, AgentSnapshot, CardSample, ContainerSample, ProcessSample
from vrampack.agent.nvml.driver import GpuDriver, Xid
from vrampack.agent.nvml.errors import DriverError
from vrampack.agent.settings import AgentConfiguration
from vrampack.agent.status.http import serve_status
from vrampack.agent.status.schema import LimitsStatus
from vrampack.agent.status.status import build_limits_status
from vrampack.cards.node import CardFacts

log = logging.getLogger(__name__)

MEASURE_SECONDS = 15.0
"""A scrape interval that is usual."""
SWEEP_SECONDS = 5.0
"""Who ended is forgotten within so long; a container that wants its room is judged after a look of its own."""
RESTORE_WAIT_SECONDS = 3.0
"""A container that is made while the agent starts waits so long; the hook is answered within 4 s (limits/hooks.py)."""
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Where things are on the host; a test has them elsewhere."""

    hook_socket: Path = HOOK_SOCKET
    containers: Path = containers.CONTAINERS_FOLDER
    cgroup_mount: Path = CGROUP_MOUNT
    preload: PreloadPaths = field(default_factory=PreloadPaths)
    kmod: KmodClient = field(default_factory=KmodClient)
    proc: Path = PROC


class StandaloneAgent:
    """One running agent of a host. `host` is its name, for people."""

    def __init__(
        self,
        settings: AgentConfiguration,
        metrics: AgentMetrics,
        driver: GpuDriver,
        *,
        host: str,
        node_paths: HostPaths | None = None,
    ) -> None:
        self._settings = settings
        self._host = host
        self._metrics = metrics
        self._driver = driver
        self._paths = node_paths or HostPaths()
        self._stopping = asyncio.Event()
        self._has_cards = asyncio.Event()
        self._limits_ready = asyncio.Event()
        self._failure: Exception | None = None
        self._cgroups = CgroupTree(self._paths.cgroup_mount)
        may_overcommit = settings.standalone.overcommit == "allow"
        self._host_containers = containers.HostContainers(
            self._paths.containers, self._cgroups, may_overcommit=may_overcommit
        )
        self._discovery = Discovery(
            driver,
            build_discovery_settings(settings),
            is_card_held=lambda uuid: self._host_containers.sum_limits_mib(uuid) > 0,
            on_xid=self._count_xid,
            on_driver_error=metrics.driver_errors.inc,
        )
        self._hook_server = HookServer(self._paths.hook_socket, self._answer_hook)
        self._back_end: BackEnd | None = None
        self._kmod: KmodBackEnd | None = None
        self._limits_problem = ""
        """Why nobody who starts now can be held, where the kernel module says it."""
        self._host_limits: HostLimits | None = None
        """None until limits can be held: nobody with one may start."""
        self._used_by_card: Mapping[str, int] = {}
        self._container_usage: Mapping[tuple[str, str, str], UsageTotals] | None = None
        """By tenant, its id and card; None while nobody measured."""
        metrics.register_snapshot(self._take_snapshot)

    async def run(self) -> None:
        """Serve until `stop`. Raises `ImpossibleBackEndError`, and `OSError` for addresses and files that are taken."""
        pages = serve_status(
            self._settings.listen.health, self._metrics, self.find_unready_reason, self._build_limits_status
        )
        async with pages, asyncio.TaskGroup() as group:
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
        """Begin a clean stop; what containers hold stays, and the next agent knows it."""
        self._stopping.set()

    def find_unready_reason(self) -> str:
        """Why no container with a limit could start here now; empty when all is well."""
        if self._stopping.is_set():
            return "stopping"
        if self._host_limits is not None:
            return self._limits_problem
        why = self._discovery.problem or ("limits are being taken up" if self._has_cards.is_set() else "")
        return f"the cards of this host are not known yet{': ' * bool(why)}{why}"

    @property
    def mode(self) -> str:
        """Who holds limits here; empty while nobody can."""
        return self._back_end.mode if self._back_end is not None else ""

    @property
    def accounting(self) -> UsageAccounting | None:
        """What processes hold, where module or library count it."""
        return self._back_end if isinstance(self._back_end, PreloadBackEnd) else self._kmod

    @property
    def module_state(self) -> ModuleState | None:
        return self._kmod.module_state if self._kmod is not None else None

    def get_limits_mib(self, key: str, _container: str, /) -> Mapping[str, int] | None:
        found = self._host_containers.find_container(CgroupOwner(key))
        return None if found is None else found.limits

    async def _serve(self) -> None:
        """Listen at once, so that nobody waits for an answer; say yes once the back end holds who runs already."""
        preload: PreloadBackEnd | None = None
        try:
            for folder in (self._paths.hook_socket.parent, self._paths.preload.folder):
                folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            await self._hook_server.start()
            self._host_containers.restore_running()
            await self._has_cards.wait()
            choice = self._select_back_end()
            is_preload = choice.mechanism is Mechanism.PRELOAD
            # The library of a container that was made while it was needed asks on, and silence would stop it.
            if is_preload or (self._paths.preload.folder / files.LIBRARY).exists():
                preload = self._build_preload()
                await preload.start()
            self._back_end = preload if is_preload and preload is not None else self._build_back_end(choice.mechanism)
            mount = str(self._paths.preload.folder) if is_preload else ""
            limits = HostLimits(
                self._cgroups, self._host_containers, self._back_end, cards=lambda: self._discovery.cards, mount=mount
            )
            await self._reconcile_module()
            await limits.restore_limits()
            self._host_limits = limits
            self._limits_ready.set()
            log.info("back end selected mode=%s reason=%s", choice.mode, choice.reason)
            await asyncio.Event().wait()
        except (ImpossibleBackEndError, OSError) as error:
            self._failure = error
            self.stop()
        finally:
            await self._hook_server.stop()
            if preload is not None:
                preload.stop()

    def _build_back_end(self, mechanism: Mechanism) -> BackEnd:
        """Not the library."""
        if mechanism is not Mechanism.MODULE:
            return NativeByHook(self._driver, UsageMeter(self._driver, self._host_containers.find_process_owner))
        self._kmod = KmodBackEnd(
            self._paths.kmod,
            self._cgroups,
            list_desired=self._list_desired_budgets,
            is_owner_gone=lambda key: self._host_containers.find_container(CgroupOwner(key)) is None,
            get_minors=self._get_minors,
            driver_version=lambda: self._discovery.driver_version,
            name_budget=lambda identity: identity.pod_uid,
            proc=self._paths.proc,
        )
        return self._kmod

    def _list_desired_budgets(self) -> Iterable[DesiredBudget]:
        """Everybody who has a limit."""
        for each in self._host_containers.list_containers():
            folder = partial(self._find_cgroup, each)
            yield DesiredBudget(
                each.key, each.limits, folder, reported_container=each.owner.container_id, weight=each.weight
            )

    def _find_cgroup(self, each: containers.HostContainer) -> Path | None:
        try:
            return self._cgroups.get_folder(each.hierarchy, each.cgroup)
        except LimitError:
            return None

    def _get_minors(self) -> Mapping[str, int]:
        return {uuid: gpu.minor for uuid, gpu in self._discovery.gpus.items()}

    async def _answer_hook(self, question: HookQuestion) -> str:
        if not self._discovery.problem:
            with suppress(TimeoutError):
                async with asyncio.timeout(RESTORE_WAIT_SECONDS):
                    await self._limits_ready.wait()
        if self._host_limits is None:
            raise LimitError(self.find_unready_reason())
        return await self._host_limits.apply_limit(question)

    def _select_back_end(self) -> Selection:
        """Raises `ImpossibleBackEndError`: what holds nobody is no choice here."""
        places = self._paths.preload
        findings = detect_capabilities(
            driver_version=self._discovery.driver_version,
            has_mig=any(card.mig_parent is not None for card in self._discovery.cards),
            cgroup_version=self._cgroups.version,
            library_paths=(places.shipped, places.folder),
            module_problem=find_preflight_problem(
                self._paths.kmod,
                cgroup_version=self._cgroups.version,
                proc=self._paths.proc,
            ),
        )
        # The hook is how a container comes here at all; the toolkit's does not read our variables.
        choice = select_back_end(
            self._settings.enforcement, replace(findings, toolkit=ToolkitState.ABSENT, has_hook=True)
        )
        if choice.mechanism in {Mechanism.WATCH, Mechanism.NONE}:
            text = f"no limit can be held: {choice.reason}; without Kubernetes enforcement is auto, native, kmod or preload"
            raise ImpossibleBackEndError(text)
        return choice

    def _build_preload(self) -> PreloadBackEnd:
        return PreloadBackEnd(
            self._paths.preload,
            resolve_container=self._resolve_container,
            get_minors=self._get_minors,
            driver_version=lambda: self._discovery.driver_version,
            find_owner=self._host_containers.find_process_owner,
        )

    def _resolve_container(self, owner: CgroupOwner | None) -> ResolvedContainer | Unresolved:
        found = self._host_containers.find_container(owner) if owner is not None else None
        return Unresolved.UNKNOWN_OWNER if found is None else ResolvedContainer(found.owner.container_id, found.limits)

    async def _reconcile_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            if self._host_limits is not None:
                await self._host_limits.release_ended_containers()
                await self._reconcile_module()

    async def _reconcile_module(self) -> None:
        """At the module, where limits hang on it."""
        if self._kmod is None:
            return
        problem = await self._kmod.reconcile()
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
            await asyncio.sleep(MEASURE_SECONDS)

    async def _measure_containers(self) -> Mapping[tuple[str, str, str], UsageTotals] | None:
        if self._back_end is None:
            return None
        used: Counter[tuple[str, str, str]] = Counter()
        for row in await self._back_end.measure_usage():
            used[row.pod_uid, row.container_id, row.uuid] += row.used_bytes
        return {key: UsageTotals(used_bytes, 0, 0) for key, used_bytes in used.items()}

    def _build_limits_status(self) -> LimitsStatus:
        """For `/limits`; a container is its engine's id, and its uid our own."""
        return build_limits_status(
            self._host, self, driver_version=self._discovery.driver_version, cards=self._discovery.cards, pods=()
        )

    def _take_snapshot(self) -> AgentSnapshot:
        """For the page of metrics."""
        cards = self._discovery.cards
        return AgentSnapshot(
            cards=tuple(
                CardSample(card, self._count_held_units(card), self._used_by_card.get(card.uuid or ""))
                for card in cards
            ),
            containers=tuple(self._container_samples(cards)),
            enforcement=self.mode,
            problem=self.find_unready_reason(),
            hook_answer_counts=(self._hook_server.allowed_count, self._hook_server.refused_count),
            processes=tuple(
                ProcessSample("", "", name, count)
                for (_, name), count in sorted(
                    self.accounting.count_processes().items() if self.accounting is not None else ()
                )
            ),
        )

    def _count_held_units(self, card: CardFacts) -> int:
        """Begun ones count."""
        return -(-self._host_containers.sum_limits_mib(card.uuid or "") * card.units // card.memory_mib)

    def _container_samples(self, cards: Iterable[CardFacts]) -> Iterable[ContainerSample]:
        """By limit, so that a container that uses nothing is there as well."""
        index = {card.uuid: card.index for card in cards}
        tallies = self.accounting.list_usage_totals() if self.accounting is not None else self._container_usage
        for each in self._host_containers.list_containers():
            for uuid, mib in sorted(each.limits.items()):
                use = ContainerSample(uuid, index.get(uuid, -1), "", "", each.id, mib * _MIB, None)
                tally = (tallies or {}).get((each.key, each.owner.container_id, uuid), UsageTotals(0, 0, 0))
                if tallies is not None:
                    use = replace(use, used_bytes=tally.used_bytes)
                yield (
                    use if self.accounting is None else replace(use, peak_bytes=tally.peak_bytes, refused=tally.refused)
                )

    def _on_cards_changed(self) -> None:
        if self._discovery.is_outdated:
            log.error("driver replaced, exiting to load its library")
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
