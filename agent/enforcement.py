"""Who holds limits on this node, and the pods that it is asked about.

One door for both who ask: the fence before a container starts, and the runtime's hook when its cgroup is there. How much
a container may use comes from its pod's record, by whichever way it is asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agent.errors import RefusedStartError
from agent.fence import Passed
from agent.following import is_followed
from agent.limits.cgroups import Cgroups, Owner, owner_of_pid
from agent.limits.choice import Choice, Way, choose
from agent.limits.contract import BackEnd, Identity, Scope, Usage
from agent.limits.detection import cdi_devices, find
from agent.limits.errors import LimitError
from agent.limits.hooks import HookServer
from agent.limits.measure import Measure, OwnerOf
from agent.limits.native import NativeByHook, NativeByToolkit
from agent.limits.nobody import Nobody
from agent.limits.podlimits import PodLimits
from agent.limits.preload import files
from agent.limits.preload.answers import Unnamed
from agent.limits.preload.backend import Named, Paths, Preload
from agent.limits.watch import Over, Watch
from agent.nvml.driver import Driver, Gpu
from agent.podresources import Held
from agent.pods import LocalPod
from agent.settings import AgentConfiguration
from cards import keys
from cards.grants import read_grant, read_pod_limits
from cards.node import CardFacts, Devices
from cards.records import Record, RecordError

log = logging.getLogger(__name__)

CGROUP_MOUNT = Path("/sys/fs/cgroup")
HOOK_SOCKET = Path("/run/vrampack/hook.sock")
RUNTIME_SPECS = tuple(Path("/node/etc/vrampack") / name for name in ("containerd.json", "crio.json"))
"""Where docs/limits.md has people put it, as the agent's pod sees it: a folder of ours, for the runtime's has passwords."""


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


class Enforcement:
    """The chosen back end. Before `begin` nobody is chosen and nothing may start."""

    def __init__(
        self,
        settings: AgentConfiguration,
        driver: Driver,
        *,
        found: Found,
        pod_of: Callable[[str], LocalPod | None],
        surroundings: Surroundings | None = None,
    ) -> None:
        self._settings = settings
        self._driver = driver
        self._found = found
        self._surroundings = surroundings or Surroundings()
        self._cgroups = Cgroups(CGROUP_MOUNT)
        self._pod_of = pod_of
        self._admitted: dict[str, LocalPod] = {}
        """Pods that passed the fence, by uid, as they passed: the watch may not show them yet, or not what was corrected."""
        self._followed: dict[str, tuple[LocalPod, LocalPod, bool]] = {}
        """By uid: as shown, as admitted, and whether the one takes the other's place."""
        self._back_end: BackEnd | None = None
        self._choice: Choice | None = None
        self._hooks: HookServer | None = None
        self._watch: Watch | None = None
        self._preload: Preload | None = None
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
    def books(self) -> Preload | None:
        """What processes hold, where the library asks for it."""
        return self._preload if self.word == "preload" else None

    def devices(self, cards: Iterable[CardFacts]) -> Devices:
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
        if passed.grant is None or known is None or known.pod.ask is None:
            return
        if self._back_end is None:
            raise RefusedStartError("limit", "nobody on this node can hold its limit; see the agent's log")
        identity = Identity(passed.uid, held.namespace, held.pod)
        try:
            limits = read_pod_limits(known.annotations, known.pod.ask)
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
        """MiB by card of one container that may start; nothing for one of a previous plugin, None for a stranger."""
        pod = self._pod(pod_uid)
        if pod is None:
            return None
        try:
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
        name = self.name_of(owner.pod_uid, owner.container_id) or _only_asking(pod)
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
            minors=lambda: {uuid: gpu.minor for uuid, gpu in self._found.gpus.items()},
            driver_version=lambda: self._found.driver_version,
            owner_of=self._surroundings.owner_of,
        )


def _only_asking(pod: LocalPod) -> str | None:
    """The one container that asks, init containers too: while the status names nobody it can be no other with a card."""
    names = [each.name for each in pod.pod.ask.containers] if pod.pod.ask is not None else []
    return names[0] if len(names) == 1 else None
