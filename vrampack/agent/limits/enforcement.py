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

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.admission.fence import AdmittedStart
from vrampack.agent.admission.limit_changes import is_limit_change_accepted
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.kubelet.podresources import DeviceAllocation
from vrampack.agent.limits.accounting import UsageAccounting
from vrampack.agent.limits.cgroups import CGROUP_MOUNT, CgroupOwner, CgroupTree, find_process_owner
from vrampack.agent.limits.contract import BackEnd, ContainerUsage, LimitTarget, Scope
from vrampack.agent.limits.detection import detect_capabilities, list_cdi_devices
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.hook_server import HOOK_SOCKET, HookServer
from vrampack.agent.limits.kmod.backend import DesiredBudget, KmodBackEnd
from vrampack.agent.limits.kmod.budget_owner import PROC
from vrampack.agent.limits.kmod.desired import find_only_requester, list_desired_budgets
from vrampack.agent.limits.kmod.preflight import find_preflight_problem
from vrampack.agent.limits.kmod.proc_client import KmodClient, ModuleState
from vrampack.agent.limits.native.backend import NativeByHook, NativeByToolkit
from vrampack.agent.limits.no_limits import NoLimits
from vrampack.agent.limits.overuse_monitor import OverLimit, OveruseMonitor
from vrampack.agent.limits.pod_limits import PodLimits
from vrampack.agent.limits.preload import files
from vrampack.agent.limits.preload.backend import PreloadBackEnd, PreloadPaths, ResolvedContainer
from vrampack.agent.limits.preload.decisions import Unresolved
from vrampack.agent.limits.selection import Mechanism, Selection, select_back_end
from vrampack.agent.limits.usage_meter import FindOwner, UsageMeter
from vrampack.agent.nvml.driver import Gpu, GpuDriver
from vrampack.agent.settings import AgentConfiguration
from vrampack.cards import well_known
from vrampack.cards.grants import read_grant, read_pod_limits
from vrampack.cards.node import CardFacts, DeviceNaming
from vrampack.cards.records import Record, RecordError

log = logging.getLogger(__name__)

RUNTIME_SPECS = tuple(Path("/node/etc/vrampack") / name for name in ("containerd.json", "crio.json"))
"""Where docs/limits.md has people put it, as the agent's pod sees it: a folder of ours, for the runtime's has passwords."""
RECONCILE_SECONDS = 5.0
"""Between two looks at the kernel module while no pod changes."""


class DiscoveredCards(Protocol):
    """What is known of the node's cards, see `discovery.py`."""

    @property
    def cards(self) -> tuple[CardFacts, ...]: ...
    @property
    def gpus(self) -> Mapping[str, Gpu]: ...
    @property
    def driver_version(self) -> str: ...


@dataclass(frozen=True, slots=True)
class NodePaths:
    """What of the node limits are held with."""

    hook_socket: Path = HOOK_SOCKET
    preload: PreloadPaths = field(default_factory=PreloadPaths)
    find_owner: FindOwner = find_process_owner
    kmod: KmodClient = field(default_factory=KmodClient)
    cgroup_mount: Path = CGROUP_MOUNT
    proc: Path = PROC


class Enforcement:
    """The chosen back end. Before `begin` nobody is chosen and nothing may start."""

    def __init__(
        self,
        settings: AgentConfiguration,
        driver: GpuDriver,
        *,
        node_cards: DiscoveredCards,
        find_pod: Callable[[str], LocalPod | None],
        list_pods: Callable[[], Iterable[LocalPod]] = tuple,
        node_paths: NodePaths | None = None,
    ) -> None:
        self._settings = settings
        self._driver = driver
        self._node_cards = node_cards
        self._paths = node_paths or NodePaths()
        self._cgroups = CgroupTree(self._paths.cgroup_mount)
        self._find_pod = find_pod
        self._list_pods = list_pods
        self._admitted: dict[str, LocalPod] = {}
        """Pods that passed the fence, by uid, as they passed: the watch may not show them yet, or not what was corrected."""
        self._limit_changes: dict[str, tuple[LocalPod, LocalPod, bool]] = {}
        """By uid: as shown, as admitted, and whether the one takes the other's place."""
        self._back_end: BackEnd | None = None
        self._selection: Selection | None = None
        self._hook_server: HookServer | None = None
        self._overuse_monitor: OveruseMonitor | None = None
        self._preload: PreloadBackEnd | None = None
        self._kmod: KmodBackEnd | None = None
        self._has_started = asyncio.Event()
        self._pods_changed = asyncio.Event()
        self._resolved: dict[CgroupOwner, tuple[LocalPod, LocalPod | None, ResolvedContainer | Unresolved]] = {}
        """Answers of `named`, and the pods as they were read for them."""

    @property
    def mode(self) -> str:
        """For the node's label and the metric; empty before `begin`."""
        return self._selection.mode if self._selection is not None else ""

    async def start(self, cards: Iterable[CardFacts], driver_version: str) -> None:
        """Look at the node and choose. Raises `ImpossibleBackEndError` when what the settings name cannot work here."""
        findings = detect_capabilities(
            driver_version=driver_version,
            has_mig=any(card.mig_parent is not None for card in cards),
            cgroup_version=self._cgroups.version,
            runtime_specs=RUNTIME_SPECS,
            library_paths=(self._paths.preload.shipped, self._paths.preload.folder),
            module_problem=find_preflight_problem(
                self._paths.kmod,
                cgroup_version=self._cgroups.version,
                proc=self._paths.proc,
            ),
        )
        self._selection = select_back_end(self._settings.enforcement, findings)
        log.info(
            "back end selected mode=%s mechanism=%s reason=%s",
            self.mode,
            self._selection.mechanism,
            self._selection.reason,
        )
        back_end = self._build_back_end(self._selection.mechanism)
        await self._start_preload()
        self._back_end = back_end
        # A hook that is installed where nobody needs it is answered as well: its silence stops every container.
        hook_socket = self._paths.hook_socket
        if self._selection.mechanism is Mechanism.HOOK or hook_socket.parent.is_dir():
            pods = PodLimits(self._cgroups, self._back_end, self.get_limits_mib)
            self._hook_server = HookServer(hook_socket, pods.apply_limit)
            await self._hook_server.start()
        self._has_started.set()

    async def run(self, on_problem: Callable[[str], None]) -> None:
        """Keep what the kernel module holds as the pods say it, and `tell` why it can hold nobody new; until cancelled."""
        await self._has_started.wait()
        while self._kmod is not None:
            self._pods_changed.clear()
            on_problem(await self._kmod.reconcile())
            with suppress(TimeoutError):
                async with asyncio.timeout(RECONCILE_SECONDS):
                    await self._pods_changed.wait()

    def notify_pods_changed(self) -> None:
        """Some pod of this node is another than before."""
        self._pods_changed.set()

    async def _start_preload(self) -> None:
        """Raises `OSError` where limits hang on it."""
        if self._preload is None:
            return
        try:
            await self._preload.start()
        except OSError as error:
            if self.mode == "preload":
                raise
            log.warning("preload server not started error=%s", error)
            self._preload = None

    def close(self) -> None:
        """Let go of what the next agent of this node needs."""
        if self._preload is not None:
            self._preload.stop()

    def mounts(self) -> Mapping[str, str]:
        """What every container is shown of the node: path there by path in the container."""
        return files.list_mounts() if self.mode == "preload" else {}

    @property
    def accounting(self) -> UsageAccounting | None:
        """What processes hold, where module or library count it."""
        return self._preload if self.mode == "preload" else self._kmod

    @property
    def module_state(self) -> ModuleState | None:
        """The kernel module as it was seen last, where limits hang on it."""
        return self._kmod.module_state if self._kmod is not None else None

    def choose_device_naming(self, cards: Iterable[CardFacts]) -> DeviceNaming:
        """How these cards are named to this node's container runtime."""
        if self._settings.devices == "auto":
            return "uuid" if self.list_cards_without_cdi(cards) else "cdi"
        return self._settings.devices

    def find_cdi_problem(self, cards: Iterable[CardFacts]) -> str:
        """Why the runtime would not give these cards to containers; empty when it would, as far as is seen here."""
        missing = self.list_cards_without_cdi(cards) if self._settings.devices == "cdi" else ()
        if not missing:
            return ""
        return (
            f"devices: cdi is set, and no file in /etc/cdi or /var/run/cdi names {well_known.CDI_KIND}={missing[0]}; "
            "let `nvidia-ctk cdi generate` or NVIDIA's device plugin write it, or set devices: uuid"
        )

    def list_cards_without_cdi(self, cards: Iterable[CardFacts]) -> list[str]:
        """Cards that no CDI file of NVIDIA's kind names."""
        named = list_cdi_devices()
        return [card.uuid or "" for card in cards if card.uuid not in named]

    async def apply(self, allocation: DeviceAllocation, admitted: AdmittedStart, pod: LocalPod | None) -> None:
        """Put the pod's limit in place before `held` starts. Raises `RefusedStartError` when that cannot be done."""
        if pod is not None:
            self._admitted[admitted.pod_uid] = pod
        known = self._get_pod(admitted.pod_uid)
        if admitted.grant is None or known is None or known.pod.request is None:
            return
        if self._back_end is None:
            raise RefusedStartError("limit", "nobody on this node can hold its limit; see the agent's log")
        identity = LimitTarget(admitted.pod_uid, allocation.namespace, allocation.pod_name)
        try:
            limits = read_pod_limits(known.annotations, known.pod.request)
            applied = await self._back_end.apply(Scope.POD, identity, limits)
        except (LimitError, RecordError) as error:
            raise RefusedStartError("limit", f"its memory limit cannot be put in place: {error}") from error
        log.debug("limit applied pod=%s state=%s held_by=%s", identity, applied.state, applied.held_by)

    async def measure_usage(self) -> tuple[ContainerUsage, ...]:
        """What containers use now. Raises `DriverError`."""
        return await self._back_end.measure_usage() if self._back_end is not None else ()

    async def list_over_limit(self) -> tuple[OverLimit, ...]:
        """Who uses more than its limit now, where nobody holds it. Raises `DriverError`."""
        return await self._overuse_monitor.list_over_limit() if self._overuse_monitor is not None else ()

    @property
    def hook_answer_counts(self) -> tuple[int, int]:
        """Containers that the runtime's hook let through and refused: the proof that the runtime calls it."""
        return (
            (self._hook_server.allowed_count, self._hook_server.refused_count)
            if self._hook_server is not None
            else (0, 0)
        )

    def get_limits_mib(self, pod_uid: str, container: str) -> Mapping[str, int] | None:
        """MiB by card of one container that may start; nothing for one of a previous plugin, None for a stranger.

        Without a container's name those of all containers of the pod together.
        """
        pod = self._get_pod(pod_uid)
        if pod is None:
            return None
        try:
            if not container and pod.pod.request is not None:
                return read_pod_limits(pod.annotations, pod.pod.request)
            return read_grant(pod.annotations, container).limits_mib
        except RecordError:
            # One that a previous plugin set up, and whose record is of its kind, runs on as it did.
            return {} if isinstance(pod.pod.record, Record) else None

    def get_container_name(self, pod_uid: str, container_id: str) -> str | None:
        """The container of this id; None while the pod's status does not say it."""
        pod = self._find_pod(pod_uid)
        ids = {} if pod is None else {found.rpartition("/")[2]: name for name, found in pod.container_ids.items()}
        return ids.get(container_id)

    def resolve_container(self, owner: CgroupOwner | None) -> ResolvedContainer | Unresolved:
        """Which container this is, and what it may use now. Read again when its pod has changed.

        Only containers that may use a card are shown the library: a process of which no pod can be told is no host's.
        """
        pod = self._get_pod(owner.pod_uid) if owner is not None else None
        if pod is None or owner is None:
            return Unresolved.UNKNOWN_OWNER
        shown = self._find_pod(owner.pod_uid)
        known = self._resolved.get(owner)
        if known is None or known[0] is not pod or known[1] is not shown:
            known = self._resolved[owner] = pod, shown, self._resolve(owner, pod)
        return known[2]

    def forget_pod(self, uid: str) -> None:
        self._admitted.pop(uid, None)
        self._limit_changes.pop(uid, None)
        for owner in [owner for owner in self._resolved if owner.pod_uid == uid]:
            del self._resolved[owner]
        if self._preload is not None:
            self._preload.forget_pod(uid)

    def _resolve(self, owner: CgroupOwner, pod: LocalPod) -> ResolvedContainer | Unresolved:
        record = pod.pod.record
        if not isinstance(record, Record):
            return Unresolved.UNKNOWN_OWNER
        if not record.is_ours:
            return Unresolved.UNLIMITED  # what a previous plugin set up runs on as it did
        name = self.get_container_name(owner.pod_uid, owner.container_id) or find_only_requester(pod)
        return (
            Unresolved.NAME_PENDING
            if name is None
            else ResolvedContainer(name, self.get_limits_mib(owner.pod_uid, name) or {})
        )

    def _get_pod(self, uid: str) -> LocalPod | None:
        """As it passed the fence, or as the watch shows it where only its limits are others: see `admission/limit_changes.py`."""
        admitted, shown = self._admitted.get(uid), self._find_pod(uid)
        if admitted is None or shown is None:
            return admitted or shown
        known = self._limit_changes.get(uid)
        if known is None or known[0] is not shown or known[1] is not admitted:
            known = self._limit_changes[uid] = (
                shown,
                admitted,
                is_limit_change_accepted(shown, admitted, self._node_cards.cards),
            )
        return shown if known[2] else admitted

    def _build_back_end(self, mechanism: Mechanism) -> BackEnd:
        measure = UsageMeter(self._driver, find_process_owner)
        paths = self._paths.preload
        # The library of a container that was made while this node held limits with it asks on, and its silence would stop it.
        if mechanism is Mechanism.PRELOAD or (paths.folder / files.LIBRARY).exists():
            self._preload = self._build_preload(
                self.resolve_container if mechanism is Mechanism.PRELOAD else lambda _: Unresolved.UNLIMITED
            )
        if mechanism is Mechanism.PRELOAD and self._preload is not None:
            return self._preload
        if mechanism is Mechanism.MODULE:
            self._kmod = KmodBackEnd(
                self._paths.kmod,
                self._cgroups,
                list_desired=self._list_desired_budgets,
                is_owner_gone=self._is_pod_gone,
                get_minors=self._get_minors,
                driver_version=lambda: self._node_cards.driver_version,
                proc=self._paths.proc,
            )
            return self._kmod
        if mechanism is Mechanism.TOOLKIT:
            return NativeByToolkit(measure)
        if mechanism is Mechanism.HOOK:
            return NativeByHook(self._driver, measure)
        if mechanism is Mechanism.WATCH:
            self._overuse_monitor = OveruseMonitor(
                measure,
                self.get_limits_mib,
                self.get_container_name,
                time.monotonic,
                slack_mib=self._settings.watch.slack_mib,
                evict_after_seconds=self._settings.watch.evict_after_seconds,
            )
            return self._overuse_monitor
        return NoLimits()

    def _build_preload(
        self, resolve_container: Callable[[CgroupOwner | None], ResolvedContainer | Unresolved]
    ) -> PreloadBackEnd:
        return PreloadBackEnd(
            self._paths.preload,
            resolve_container=resolve_container,
            get_minors=self._get_minors,
            driver_version=lambda: self._node_cards.driver_version,
            find_owner=self._paths.find_owner,
        )

    def _get_minors(self) -> Mapping[str, int]:
        return {uuid: gpu.minor for uuid, gpu in self._node_cards.gpus.items()}

    def _list_desired_budgets(self) -> Iterator[DesiredBudget]:
        """Of pods that were let through, or run since before this agent."""
        uids = {pod.pod.uid for pod in self._list_pods() if pod.started_containers} | self._admitted.keys()
        return list_desired_budgets(
            (pod for uid in sorted(uids) if (pod := self._get_pod(uid)) is not None), self._cgroups
        )

    def _is_pod_gone(self, uid: str) -> bool:
        shown = self._find_pod(uid)
        is_over = uid not in self._admitted and (shown is None or not shown.is_active)
        return is_over and self._cgroups.find_pod_cgroup(uid) is None
