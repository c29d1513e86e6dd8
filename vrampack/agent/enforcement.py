"""Who holds limits on this node, and the pods that it is asked about.

One door for both who ask: the fence before a container starts, and the runtime's hook when its cgroup is there. How much
a container may use comes from its pod's record, by whichever way it is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vrampack.agent.errors import RefusedStartError
from vrampack.agent.fence import Passed
from vrampack.agent.following import is_followed
from vrampack.agent.limits.books import Books
from vrampack.agent.limits.cgroups import MOUNT, Cgroups, Owner, owner_of_pid
from vrampack.agent.limits.choice import Choice, Way, choose
from vrampack.agent.limits.contract import BackEnd, Identity, Scope, Usage
from vrampack.agent.limits.detection import cdi_devices, find
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.hooks import HOOK_SOCKET, HookServer
from vrampack.agent.limits.kmod.backend import Kmod, Wanted
from vrampack.agent.limits.kmod.identity import PROC
from vrampack.agent.limits.kmod.nodes import Nodes, State
from vrampack.agent.limits.kmod.presence import why_not
from vrampack.agent.limits.measure import Measure, OwnerOf
from vrampack.agent.limits.native import NativeByHook, NativeByToolkit
from vrampack.agent.limits.nobody import Nobody
from vrampack.agent.limits.podlimits import PodLimits
from vrampack.agent.limits.preload import files
from vrampack.agent.limits.preload.answers import Unnamed
from vrampack.agent.limits.preload.backend import Named, Paths, Preload
from vrampack.agent.limits.watch import Over, Watch
from vrampack.agent.localpod import LocalPod
from vrampack.agent.nvml.driver import Driver, Gpu
from vrampack.agent.podresources import Held
from vrampack.agent.settings import AgentConfiguration
from vrampack.agent.wants import only_asking, wants
from vrampack.cards import keys
from vrampack.cards.grants import read_grant, read_pod_limits
from vrampack.cards.node import CardFacts, DeviceNaming
from vrampack.cards.records import Record, RecordError

log = logging.getLogger(__name__)

RUNTIME_SPECS = tuple(Path("/node/etc/vrampack") / name for name in ("containerd.json", "crio.json"))
"""Where docs/limits.md has people put it, as the agent's pod sees it: a folder of ours, for the runtime's has passwords."""
LOOK_SECONDS = 5.0
"""Between two looks at the kernel module while no pod changes."""


class Found(Protocol):
    """What is known of the node's cards, see `discovery.py`."""

    @property
    def cards(self) -> tuple[CardFacts, ...]: ...
    @property
    def gpus(self) -> Mapping[str, Gpu]: ...
    @property
    def driver_version(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of the node limits are held with."""

    hook_socket: Path = HOOK_SOCKET
    paths: Paths = field(default_factory=Paths)
    owner_of: OwnerOf = owner_of_pid
    nodes: Nodes = field(default_factory=Nodes)
    cgroups: Path = MOUNT
    proc: Path = PROC


class Enforcement:
    """The chosen back end. Before `begin` nobody is chosen and nothing may start."""

    def __init__(
        self,
        settings: AgentConfiguration,
        driver: Driver,
        *,
        found: Found,
        pod_of: Callable[[str], LocalPod | None],
        pods: Callable[[], Iterable[LocalPod]] = tuple,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._settings = settings
        self._driver = driver
        self._found = found
        self._surroundings = surroundings or Surroundings()
        self._cgroups = Cgroups(self._surroundings.cgroups)
        self._pod_of = pod_of
        self._pods = pods
        self._admitted: dict[str, LocalPod] = {}
        """Pods that passed the fence, by uid, as they passed: the watch may not show them yet, or not what was corrected."""
        self._followed: dict[str, tuple[LocalPod, LocalPod, bool]] = {}
        """By uid: as shown, as admitted, and whether the one takes the other's place."""
        self._back_end: BackEnd | None = None
        self._choice: Choice | None = None
        self._hooks: HookServer | None = None
        self._watch: Watch | None = None
        self._preload: Preload | None = None
        self._kmod: Kmod | None = None
        self._has_begun = asyncio.Event()
        self._pods_changed = asyncio.Event()
        self._named: dict[Owner, tuple[LocalPod, LocalPod | None, Named | Unnamed]] = {}
        """Answers of `named`, and the pods as they were read for them."""

    @property
    def word(self) -> str:
        """For the node's label and the metric; empty before `begin`."""
        return self._choice.word if self._choice is not None else ""

    async def begin(self, cards: Iterable[CardFacts], driver_version: str) -> None:
        """Look at the node and choose. Raises `ImpossibleBackEndError` when what the settings name cannot work here."""
        findings = find(
            driver_version=driver_version,
            has_mig=any(card.mig_parent is not None for card in cards),
            cgroup_version=self._cgroups.version,
            runtime_specs=RUNTIME_SPECS,
            library=(self._surroundings.paths.shipped, self._surroundings.paths.folder),
            without_module=why_not(
                self._surroundings.nodes,
                cgroup_version=self._cgroups.version,
                proc=self._surroundings.proc,
            ),
        )
        self._choice = choose(self._settings.enforcement, findings)
        log.info("limits are held by mode=%s way=%s why=%s", self.word, self._choice.way, self._choice.why)
        back_end = self._make(self._choice.way)
        await self._start_preload()
        self._back_end = back_end
        # A hook that is installed where nobody needs it is answered as well: its silence stops every container.
        hook_socket = self._surroundings.hook_socket
        if self._choice.way is Way.HOOK or hook_socket.parent.is_dir():
            pods = PodLimits(self._cgroups, self._back_end, self.limits_of)
            self._hooks = HookServer(hook_socket, pods.put_in_force)
            await self._hooks.start()
        self._has_begun.set()

    async def look_after(self, tell: Callable[[str], None]) -> None:
        """Keep what the kernel module holds as the pods say it, and `tell` why it can hold nobody new; until cancelled."""
        await self._has_begun.wait()
        while self._kmod is not None:
            self._pods_changed.clear()
            tell(await self._kmod.look())
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._pods_changed.wait()

    def pods_changed(self) -> None:
        """Some pod of this node is another than before."""
        self._pods_changed.set()

    async def _start_preload(self) -> None:
        """Raises `OSError` where limits hang on it."""
        if self._preload is None:
            return
        try:
            await self._preload.start()
        except OSError as error:
            if self.word == "preload":
                raise
            log.warning("containers with the library are not answered error=%s", error)
            self._preload = None

    def close(self) -> None:
        """Let go of what the next agent of this node needs."""
        if self._preload is not None:
            self._preload.stop()

    def mounts(self) -> Mapping[str, str]:
        """What every container is shown of the node: path there by path in the container."""
        return files.mounts() if self.word == "preload" else {}

    @property
    def books(self) -> Books | None:
        """What processes hold, where module or library count it."""
        return self._preload if self.word == "preload" else self._kmod

    @property
    def module(self) -> State | None:
        """The kernel module as it was seen last, where limits hang on it."""
        return self._kmod.state if self._kmod is not None else None

    def devices(self, cards: Iterable[CardFacts]) -> DeviceNaming:
        """How these cards are named to this node's container runtime."""
        if self._settings.devices == "auto":
            return "uuid" if self.without_cdi(cards) else "cdi"
        return self._settings.devices

    def problem(self, cards: Iterable[CardFacts]) -> str:
        """Why the runtime would not give these cards to containers; empty when it would, as far as is seen here."""
        missing = self.without_cdi(cards) if self._settings.devices == "cdi" else ()
        if not missing:
            return ""
        return (
            f"devices: cdi is set, and no file in /etc/cdi or /var/run/cdi names {keys.CDI_KIND}={missing[0]}; "
            "let `nvidia-ctk cdi generate` or NVIDIA's device plugin write it, or set devices: uuid"
        )

    def without_cdi(self, cards: Iterable[CardFacts]) -> list[str]:
        """Cards that no CDI file of NVIDIA's kind names."""
        named = cdi_devices()
        return [card.uuid or "" for card in cards if card.uuid not in named]

    async def apply(self, held: Held, passed: Passed, pod: LocalPod | None) -> None:
        """Put the pod's limit in place before `held` starts. Raises `RefusedStartError` when that cannot be done."""
        if pod is not None:
            self._admitted[passed.uid] = pod
        known = self._pod(passed.uid)
        if passed.grant is None or known is None or known.pod.request is None:
            return
        if self._back_end is None:
            raise RefusedStartError("limit", "nobody on this node can hold its limit; see the agent's log")
        identity = Identity(passed.uid, held.namespace, held.pod)
        try:
            limits = read_pod_limits(known.annotations, known.pod.request)
            applied = await self._back_end.apply(Scope.POD, identity, limits)
        except (LimitError, RecordError) as error:
            raise RefusedStartError("limit", f"its memory limit cannot be put in place: {error}") from error
        log.debug("limit pod=%s standing=%s by=%s", identity, applied.standing, applied.by)

    async def usage(self) -> tuple[Usage, ...]:
        """What containers use now. Raises `DriverError`."""
        return await self._back_end.usage() if self._back_end is not None else ()

    async def over(self) -> tuple[Over, ...]:
        """Who uses more than its limit now, where nobody holds it. Raises `DriverError`."""
        return await self._watch.look() if self._watch is not None else ()

    @property
    def hook_answers(self) -> tuple[int, int]:
        """Containers that the runtime's hook let through and refused: the proof that the runtime calls it."""
        return (self._hooks.allowed, self._hooks.refused) if self._hooks is not None else (0, 0)

    def limits_of(self, pod_uid: str, container: str) -> Mapping[str, int] | None:
        """MiB by card of one container that may start; nothing for one of a previous plugin, None for a stranger.

        Without a container's name those of all containers of the pod together.
        """
        pod = self._pod(pod_uid)
        if pod is None:
            return None
        try:
            if not container and pod.pod.request is not None:
                return read_pod_limits(pod.annotations, pod.pod.request)
            return read_grant(pod.annotations, container).limits_mib
        except RecordError:
            # One that a previous plugin set up, and whose record is of its kind, runs on as it did.
            return {} if isinstance(pod.pod.record, Record) else None

    def name_of(self, pod_uid: str, container_id: str) -> str | None:
        """The container of this id; None while the pod's status does not say it."""
        pod = self._pod_of(pod_uid)
        ids = {} if pod is None else {found.rpartition("/")[2]: name for name, found in pod.container_ids.items()}
        return ids.get(container_id)

    def named(self, owner: Owner | None) -> Named | Unnamed:
        """Which container this is, and what it may use now. Read again when its pod has changed.

        Only containers that may use a card are shown the library: a process of which no pod can be told is no host's.
        """
        pod = self._pod(owner.pod_uid) if owner is not None else None
        if pod is None or owner is None:
            return Unnamed.STRANGER
        shown = self._pod_of(owner.pod_uid)
        known = self._named.get(owner)
        if known is None or known[0] is not pod or known[1] is not shown:
            known = self._named[owner] = pod, shown, self._look(owner, pod)
        return known[2]

    def ended(self, uid: str) -> None:
        self._admitted.pop(uid, None)
        self._followed.pop(uid, None)
        for owner in [owner for owner in self._named if owner.pod_uid == uid]:
            del self._named[owner]
        if self._preload is not None:
            self._preload.forget(uid)

    def _look(self, owner: Owner, pod: LocalPod) -> Named | Unnamed:
        record = pod.pod.record
        if not isinstance(record, Record):
            return Unnamed.STRANGER
        if not record.is_ours:
            return Unnamed.UNLIMITED  # what a previous plugin set up runs on as it did
        name = self.name_of(owner.pod_uid, owner.container_id) or only_asking(pod)
        return Unnamed.LATER if name is None else Named(name, self.limits_of(owner.pod_uid, name) or {})

    def _pod(self, uid: str) -> LocalPod | None:
        """As it passed the fence, or as the watch shows it where only its limits are others: see `following.py`."""
        admitted, shown = self._admitted.get(uid), self._pod_of(uid)
        if admitted is None or shown is None:
            return admitted or shown
        known = self._followed.get(uid)
        if known is None or known[0] is not shown or known[1] is not admitted:
            known = self._followed[uid] = shown, admitted, is_followed(shown, admitted, self._found.cards)
        return shown if known[2] else admitted

    def _make(self, way: Way) -> BackEnd:
        measure = Measure(self._driver, owner_of_pid)
        paths = self._surroundings.paths
        # The library of a container that was made while this node held limits with it asks on, and its silence would stop it.
        if way is Way.PRELOAD or (paths.folder / files.LIBRARY).exists():
            self._preload = self._answering(self.named if way is Way.PRELOAD else lambda _: Unnamed.UNLIMITED)
        if way is Way.PRELOAD and self._preload is not None:
            return self._preload
        if way is Way.MODULE:
            self._kmod = Kmod(
                self._surroundings.nodes,
                self._cgroups,
                wanted=self._wanted,
                is_gone=self._is_gone,
                minors=self._minors,
                driver_version=lambda: self._found.driver_version,
                proc=self._surroundings.proc,
            )
            return self._kmod
        if way is Way.TOOLKIT:
            return NativeByToolkit(measure)
        if way is Way.HOOK:
            return NativeByHook(self._driver, measure)
        if way is Way.WATCH:
            self._watch = Watch(
                measure,
                self.limits_of,
                self.name_of,
                time.monotonic,
                slack_mib=self._settings.watch.slack_mib,
                evict_after_seconds=self._settings.watch.evict_after_seconds,
            )
            return self._watch
        return Nobody()

    def _answering(self, named: Callable[[Owner | None], Named | Unnamed]) -> Preload:
        return Preload(
            self._surroundings.paths,
            name_of=named,
            minors=self._minors,
            driver_version=lambda: self._found.driver_version,
            owner_of=self._surroundings.owner_of,
        )

    def _minors(self) -> Mapping[str, int]:
        return {uuid: gpu.minor for uuid, gpu in self._found.gpus.items()}

    def _wanted(self) -> Iterator[Wanted]:
        """Of pods that were let through, or run since before this agent."""
        uids = {pod.pod.uid for pod in self._pods() if pod.started} | self._admitted.keys()
        return wants((pod for uid in sorted(uids) if (pod := self._pod(uid)) is not None), self._cgroups)

    def _is_gone(self, uid: str) -> bool:
        shown = self._pod_of(uid)
        is_over = uid not in self._admitted and (shown is None or not shown.holds)
        return is_over and self._cgroups.pod(uid) is None
