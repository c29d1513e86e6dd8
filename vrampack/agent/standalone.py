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

from vrampack.agent.discovery import Discovery, looking
from vrampack.agent.limits import tenants
from vrampack.agent.limits.books import Books, Tally
from vrampack.agent.limits.cgroups import MOUNT, Cgroups, Owner
from vrampack.agent.limits.choice import Choice, Way, choose
from vrampack.agent.limits.contract import BackEnd
from vrampack.agent.limits.detection import Toolkit, find
from vrampack.agent.limits.errors import ImpossibleBackEndError, LimitError
from vrampack.agent.limits.hooks import HOOK_SOCKET, HookServer, Question
from vrampack.agent.limits.hostlimits import HostLimits
from vrampack.agent.limits.kmod.backend import Kmod, Wanted
from vrampack.agent.limits.kmod.identity import PROC
from vrampack.agent.limits.kmod.nodes import Nodes, State
from vrampack.agent.limits.kmod.presence import why_not
from vrampack.agent.limits.measure import Measure
from vrampack.agent.limits.native import NativeByHook
from vrampack.agent.limits.preload import files
from vrampack.agent.limits.preload.answers import Unnamed
from vrampack.agent.limits.preload.backend import Named, Paths, Preload
from vrampack.agent.metrics import CardUse, Connected, ContainerUse, Metrics, Shown
from vrampack.agent.nvml.driver import Driver, Xid
from vrampack.agent.nvml.errors import DriverError
from vrampack.agent.pages import serving
from vrampack.agent.settings import AgentConfiguration
from vrampack.agent.shim import status
from vrampack.agent.shown import ShimStatus
from vrampack.cards.node import CardFacts

log = logging.getLogger(__name__)

MEASURE_SECONDS = 15.0
"""A scrape interval that is usual."""
SWEEP_SECONDS = 5.0
"""Who ended is forgotten within so long; a container that wants its room is judged after a look of its own."""
TAKE_UP_SECONDS = 3.0
"""A container that is made while the agent starts waits so long; the hook is answered within 4 s (limits/hooks.py)."""
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are on the host; a test has them elsewhere."""

    hook_socket: Path = HOOK_SOCKET
    tenants: Path = tenants.FOLDER
    cgroups: Path = MOUNT
    preload: Paths = field(default_factory=Paths)
    nodes: Nodes = field(default_factory=Nodes)
    proc: Path = PROC


class StandaloneAgent:
    """One running agent of a host. `host` is its name, for people."""

    def __init__(
        self,
        settings: AgentConfiguration,
        metrics: Metrics,
        driver: Driver,
        *,
        host: str,
        places: Places | None = None,
    ) -> None:
        self._settings = settings
        self._host = host
        self._metrics = metrics
        self._driver = driver
        self._places = places or Places()
        self._stopping = asyncio.Event()
        self._have_cards = asyncio.Event()
        self._are_limits_held = asyncio.Event()
        self._failure: Exception | None = None
        self._cgroups = Cgroups(self._places.cgroups)
        may_overcommit = settings.standalone.overcommit == "allow"
        self._tenants = tenants.Tenants(self._places.tenants, self._cgroups, may_overcommit=may_overcommit)
        self._discovery = Discovery(
            driver,
            looking(settings),
            is_held=lambda uuid: self._tenants.held_mib(uuid) > 0,
            heard=self._heard,
            failed=metrics.driver_errors.inc,
        )
        self._hooks = HookServer(self._places.hook_socket, self._judge)
        self._back_end: BackEnd | None = None
        self._kmod: Kmod | None = None
        self._unheld = ""
        """Why nobody who starts now can be held, where the kernel module says it."""
        self._limits: HostLimits | None = None
        """None until limits can be held: nobody with one may start."""
        self._of_cards: Mapping[str, int] = {}
        self._measured: Mapping[tuple[str, str, str], Tally] | None = None
        """By tenant, its id and card; None while nobody measured."""
        metrics.show(self._look)

    async def run(self) -> None:
        """Serve until `stop`. Raises `ImpossibleBackEndError`, and `OSError` for addresses and files that are taken."""
        pages = serving(self._settings.listen.health, self._metrics, self.not_ready, self._status)
        async with pages, asyncio.TaskGroup() as group:
            work = (self._discovery.run(self._found), self._serve(), self._look_after(), self._measure())
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

    def not_ready(self) -> str:
        """Why no container with a limit could start here now; empty when all is well."""
        if self._stopping.is_set():
            return "stopping"
        if self._limits is not None:
            return self._unheld
        why = self._discovery.problem or ("limits are being taken up" if self._have_cards.is_set() else "")
        return f"the cards of this host are not known yet{': ' * bool(why)}{why}"

    @property
    def word(self) -> str:
        """Who holds limits here; empty while nobody can."""
        return self._back_end.word if self._back_end is not None else ""

    @property
    def books(self) -> Books | None:
        """What processes hold, where module or library count it."""
        return self._back_end if isinstance(self._back_end, Preload) else self._kmod

    @property
    def module(self) -> State | None:
        return self._kmod.state if self._kmod is not None else None

    def limits_of(self, key: str, _container: str, /) -> Mapping[str, int] | None:
        found = self._tenants.of(Owner(key))
        return None if found is None else found.limits

    async def _serve(self) -> None:
        """Listen at once, so that nobody waits for an answer; say yes once the back end holds who runs already."""
        preload: Preload | None = None
        try:
            for folder in (self._places.hook_socket.parent, self._places.preload.folder):
                folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            await self._hooks.start()
            self._tenants.restore()
            await self._have_cards.wait()
            choice = self._choose()
            is_preload = choice.way is Way.PRELOAD
            # The library of a container that was made while it was needed asks on, and silence would stop it.
            if is_preload or (self._places.preload.folder / files.LIBRARY).exists():
                preload = self._preload()
                await preload.start()
            self._back_end = preload if is_preload and preload is not None else self._other(choice.way)
            mount = str(self._places.preload.folder) if is_preload else ""
            limits = HostLimits(
                self._cgroups, self._tenants, self._back_end, cards=lambda: self._discovery.cards, mount=mount
            )
            await self._look_at_module()
            await limits.take_up()
            self._limits = limits
            self._are_limits_held.set()
            log.info("limits are held by mode=%s why=%s", choice.word, choice.why)
            await asyncio.Event().wait()
        except (ImpossibleBackEndError, OSError) as error:
            self._failure = error
            self.stop()
        finally:
            await self._hooks.stop()
            if preload is not None:
                preload.stop()

    def _other(self, way: Way) -> BackEnd:
        """Not the library."""
        if way is not Way.MODULE:
            return NativeByHook(self._driver, Measure(self._driver, self._tenants.owner_of_pid))
        self._kmod = Kmod(
            self._places.nodes,
            self._cgroups,
            wanted=self._wanted,
            is_gone=lambda key: self._tenants.of(Owner(key)) is None,
            minors=self._minors,
            driver_version=lambda: self._discovery.driver_version,
            names=lambda identity: identity.pod_uid,
            proc=self._places.proc,
        )
        return self._kmod

    def _wanted(self) -> Iterable[Wanted]:
        """Everybody who has a limit."""
        for each in self._tenants.all():
            folder = partial(self._folder, each)
            yield Wanted(each.key, each.limits, folder, shown=each.owner.container_id, weight=each.weight)

    def _folder(self, each: tenants.Tenant) -> Path | None:
        try:
            return self._cgroups.at(each.hierarchy, each.cgroup)
        except LimitError:
            return None

    def _minors(self) -> Mapping[str, int]:
        return {uuid: gpu.minor for uuid, gpu in self._discovery.gpus.items()}

    async def _judge(self, question: Question) -> str:
        if not self._discovery.problem:
            with suppress(TimeoutError):
                async with asyncio.timeout(TAKE_UP_SECONDS):
                    await self._are_limits_held.wait()
        if self._limits is None:
            raise LimitError(self.not_ready())
        return await self._limits.put_in_force(question)

    def _choose(self) -> Choice:
        """Raises `ImpossibleBackEndError`: what holds nobody is no choice here."""
        places = self._places.preload
        findings = find(
            driver_version=self._discovery.driver_version,
            has_mig=any(card.mig_parent is not None for card in self._discovery.cards),
            cgroup_version=self._cgroups.version,
            library=(places.shipped, places.folder),
            without_module=why_not(
                self._places.nodes,
                cgroup_version=self._cgroups.version,
                proc=self._places.proc,
            ),
        )
        # The hook is how a container comes here at all; the toolkit's does not read our variables.
        choice = choose(self._settings.enforcement, replace(findings, toolkit=Toolkit.ABSENT, is_hooked=True))
        if choice.way in {Way.WATCH, Way.NOBODY}:
            text = (
                f"no limit can be held: {choice.why}; without Kubernetes enforcement is auto, native, kmod or preload"
            )
            raise ImpossibleBackEndError(text)
        return choice

    def _preload(self) -> Preload:
        return Preload(
            self._places.preload,
            name_of=self._named,
            minors=self._minors,
            driver_version=lambda: self._discovery.driver_version,
            owner_of=self._tenants.owner_of_pid,
        )

    def _named(self, owner: Owner | None) -> Named | Unnamed:
        found = self._tenants.of(owner) if owner is not None else None
        return Unnamed.STRANGER if found is None else Named(found.owner.container_id, found.limits)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            if self._limits is not None:
                await self._limits.release_ended()
                await self._look_at_module()

    async def _look_at_module(self) -> None:
        """At the module, where limits hang on it."""
        if self._kmod is None:
            return
        problem = await self._kmod.look()
        if problem and problem != self._unheld:
            log.error("no container with a limit may start why=%s", problem)
        self._unheld = problem

    async def _measure(self) -> None:
        while True:
            try:
                self._of_cards = {each.uuid: each.used_bytes for each in await self._driver.usage()}
                self._measured = await self._usage()
            except DriverError as error:
                self._metrics.driver_errors.inc()
                log.debug("not measured error=%s", error)
                self._of_cards, self._measured = {}, None
            await asyncio.sleep(MEASURE_SECONDS)

    async def _usage(self) -> Mapping[tuple[str, str, str], Tally] | None:
        if self._back_end is None:
            return None
        used: Counter[tuple[str, str, str]] = Counter()
        for row in await self._back_end.usage():
            used[row.pod_uid, row.container_id, row.uuid] += row.used_bytes
        return {key: Tally(used_bytes, 0, 0) for key, used_bytes in used.items()}

    def _status(self) -> ShimStatus:
        """For `/shim`; a container is its engine's id, and its uid our own."""
        return status(
            self._host, self, driver_version=self._discovery.driver_version, cards=self._discovery.cards, pods=()
        )

    def _look(self) -> Shown:
        """For the page of metrics."""
        cards = self._discovery.cards
        return Shown(
            cards=tuple(CardUse(card, self._held_units(card), self._of_cards.get(card.uuid or "")) for card in cards),
            containers=tuple(self._containers(cards)),
            enforcement=self.word,
            problem=self.not_ready(),
            hook_answers=(self._hooks.allowed, self._hooks.refused),
            connected=tuple(
                Connected("", "", name, count)
                for (_, name), count in sorted(self.books.connected().items() if self.books is not None else ())
            ),
        )

    def _held_units(self, card: CardFacts) -> int:
        """Begun ones count."""
        return -(-self._tenants.held_mib(card.uuid or "") * card.units // card.memory_mib)

    def _containers(self, cards: Iterable[CardFacts]) -> Iterable[ContainerUse]:
        """By limit, so that a container that uses nothing is there as well."""
        index = {card.uuid: card.index for card in cards}
        tallies = self.books.tallies() if self.books is not None else self._measured
        for each in self._tenants.all():
            for uuid, mib in sorted(each.limits.items()):
                use = ContainerUse(uuid, index.get(uuid, -1), "", "", each.id, mib * _MIB, None)
                tally = (tallies or {}).get((each.key, each.owner.container_id, uuid), Tally(0, 0, 0))
                if tallies is not None:
                    use = replace(use, used_bytes=tally.used_bytes)
                yield use if self.books is None else replace(use, peak_bytes=tally.peak_bytes, refused=tally.refused)

    def _found(self) -> None:
        if self._discovery.is_outdated:
            log.error("the driver was exchanged under this process: ending, so that the next one has its library")
            self.stop()
        if self._discovery.cards:
            self._have_cards.set()

    def _heard(self, xid: Xid) -> None:
        self._metrics.xid_errors.labels(xid.uuid or "", str(xid.number)).inc()


async def run(settings: AgentConfiguration, driver: Driver, *, version: str, host: str) -> None:
    """Run it until SIGTERM or SIGINT. Raises what `StandaloneAgent.run` does."""
    agent = StandaloneAgent(settings, Metrics(version, node=host), driver, host=host)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stop)
    log.info("agent version=%s host=%s mode=standalone health=%s", version, host, settings.listen.health)
    await agent.run()
