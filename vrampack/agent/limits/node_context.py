"""Everything about the node from which a back end may be built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vrampack.agent.inventory.cdi_files import CDI_FOLDERS
from vrampack.agent.inventory.known_cards import CardPresence
from vrampack.agent.limits.cgroups import CGROUP_MOUNT, CgroupTree
from vrampack.agent.limits.detection import NodeCapabilities, detect_capabilities
from vrampack.agent.limits.hook_server import HOOK_SOCKET
from vrampack.agent.limits.workload import Workload
from vrampack.agent.nvml.driver import Gpu, GpuDriver
from vrampack.agent.settings import KmodSettings, OveruseSettings
from vrampack.cards.node import CardFacts


@dataclass(frozen=True, slots=True)
class NodePaths:
    """Paths on the node. Paths of a single back end are in that back end."""

    hook_socket: Path = HOOK_SOCKET
    containers: Path = Path("/run/vrampack/standalone")
    """The files of a host's containers."""
    cgroup_mount: Path = CGROUP_MOUNT
    proc: Path = Path("/proc")
    node_proc: Path = Path("/node/proc")
    """The /proc of the node, through which the runtime is told from other readers of CDI specs."""
    modules: Path = Path("/sys/module")
    """The kernel's, so the same in every container."""
    cdi_folders: tuple[Path, ...] = CDI_FOLDERS


class DiscoveredCards(Protocol):
    """The node's cards, see `inventory/discovery.py`."""

    @property
    def cards(self) -> tuple[CardFacts, ...]: ...
    @property
    def gpus(self) -> Mapping[str, Gpu]: ...
    @property
    def driver_version(self) -> str: ...
    @property
    def has_confidential_computing(self) -> bool: ...
    def find_presence(self, uuid: str) -> CardPresence: ...


@dataclass(frozen=True, slots=True)
class NodeContext:
    """One node."""

    paths: NodePaths
    cgroups: CgroupTree
    driver: GpuDriver
    cards: DiscoveredCards
    workload: Workload
    overuse: OveruseSettings
    kmod: KmodSettings
    clock: Callable[[], float]

    def get_minors(self) -> Mapping[str, int]:
        """N of /dev/nvidiaN by uuid of the card; for a MIG instance its parent's."""
        return {uuid: gpu.minor for uuid, gpu in self.cards.gpus.items()}

    def get_driver_version(self) -> str:
        """Empty while no driver was seen."""
        return self.cards.driver_version

    def detect_capabilities(self, *, runtime_specs: Sequence[Path] = ()) -> NodeCapabilities:
        """What this node has now."""
        return detect_capabilities(
            driver_version=self.cards.driver_version,
            has_confidential_computing=self.cards.has_confidential_computing,
            has_mig=any(card.mig_parent is not None for card in self.cards.cards),
            cgroup_version=self.cgroups.version,
            cdi_folders=self.paths.cdi_folders,
            runtime_specs=runtime_specs,
        )
