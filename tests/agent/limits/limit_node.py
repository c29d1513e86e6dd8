"""A node on which every back end works: a driver that takes limits, a simulated kernel module, a library, one pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.back_end_rows import make_rows
from tests.support.scripted_driver import ScriptedDriver, scripted_gpu
from tests.support.simulated_kmod import SimulatedKmod, write_proc
from vrampack.agent.inventory.known_cards import CardPresence
from vrampack.agent.limits.cgroups import CgroupOwner, CgroupTree
from vrampack.agent.limits.detection import NodeCapabilities, ToolkitState
from vrampack.agent.limits.node_context import NodeContext, NodePaths
from vrampack.agent.limits.preload.backend import PreloadPaths
from vrampack.agent.limits.workload import DesiredLimit, ResolvedContainer, Unresolved
from vrampack.agent.nvml.driver import Gpu
from vrampack.agent.settings import KmodSettings, OveruseSettings
from vrampack.cards.node import CardFacts

UID = "1d3a9a10-0000-4000-8000-000000000001"
CONTAINER_ID = "1a" * 32
LIMITS = {"GPU-0": 4301}
NEW_DRIVER, OLD_DRIVER = "615.71.09", "580.95.05"
READY = NodeCapabilities(
    NEW_DRIVER,
    cgroup_version=2,
    has_mig=False,
    has_confidential_computing=False,
    toolkit=ToolkitState.READY,
    has_hook=True,
)


@dataclass(frozen=True)
class FakeCards:
    """One V100 of 15 units."""

    driver_version: str = OLD_DRIVER
    has_confidential_computing: bool = False
    cards: tuple[CardFacts, ...] = (CardFacts(0, 15, 16130, "GPU-0"),)
    gpus: Mapping[str, Gpu] = field(default_factory=lambda: {"GPU-0": scripted_gpu()})
    presence: CardPresence = CardPresence.LISTED

    def find_presence(self, uuid: str) -> CardPresence:  # noqa: ARG002 - the same for all
        return self.presence


class FakeWorkload:
    """One pod with one container."""

    def __init__(self, cgroups: CgroupTree) -> None:
        self._cgroups = cgroups

    def list_desired(self) -> Iterable[DesiredLimit]:
        yield DesiredLimit(UID, LIMITS, lambda: self._cgroups.find_pod_cgroup(UID), reported_container="main")

    def get_limits_mib(self, pod_uid: str, _container: str) -> Mapping[str, int] | None:
        return LIMITS if pod_uid == UID else None

    def get_container_name(self, pod_uid: str, _container_id: str) -> str | None:
        return "main" if pod_uid == UID else None

    def resolve_container(self, owner: CgroupOwner | None) -> ResolvedContainer | Unresolved:
        return Unresolved.UNKNOWN_OWNER if owner is None else ResolvedContainer("main", LIMITS)

    def resolve_leftover(self, _owner: CgroupOwner | None) -> ResolvedContainer | Unresolved:
        return Unresolved.UNLIMITED

    def find_process_owner(self, _pid: int) -> CgroupOwner | None:
        return CgroupOwner(UID, CONTAINER_ID)

    def is_gone(self, pod_uid: str) -> bool:
        return pod_uid != UID


class LimitedDriver(ScriptedDriver):
    """Accepts every limit."""

    def __init__(self) -> None:
        super().__init__(scripted_gpu())
        self.limits: list[tuple[str, str, int | None]] = []

    async def set_limit(self, cgroup_path: str, uuid: str, mib: int | None) -> None:
        self.limits.append((cgroup_path, uuid, mib))


class LimitNode:
    """Its module and its library may be taken away."""

    def __init__(self, folder: Path) -> None:
        cgroup_mount = folder / "cgroup"
        self.container_cgroup = cgroup_mount / "kubepods" / f"pod{UID}" / CONTAINER_ID
        self.container_cgroup.mkdir(parents=True)
        (cgroup_mount / "cgroup.controllers").touch()
        self.library = PreloadPaths(folder / "preload", folder / "libvrampack.so", folder / "run" / "preload.books")
        self.library.folder.mkdir()
        self.library.shipped.write_bytes(b"a library")
        self.module = SimulatedKmod(OLD_DRIVER)
        self.rows = make_rows(self.module, self.library)
        cgroups = CgroupTree(cgroup_mount)
        self.driver = LimitedDriver()
        self.context = NodeContext(
            NodePaths(
                folder / "hook.sock", cgroup_mount=cgroup_mount, proc=write_proc(folder), modules=folder / "modules"
            ),
            cgroups,
            self.driver,
            FakeCards(),
            FakeWorkload(cgroups),
            OveruseSettings(),
            KmodSettings(),
            lambda: 0.0,
        )
