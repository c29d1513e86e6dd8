"""The specs that NVIDIA's own tools made (`specs/README.md`), and the cards that they are about."""

from __future__ import annotations

from pathlib import Path

from tests.agent.agent_harness import SPECS
from tests.fakes.nvml.profiles import PROFILES, StubGpu, StubInstance
from vrampack.agent.cdi.edits_source import CdiHostPaths, EditsSource
from vrampack.agent.nvml.driver import Gpu

MIG_MINORS = "config 1\nmonitor 2\ngpu0/gi1/access 3\ngpu0/gi1/ci0/access 4\ngpu0/gi2/access 5\ngpu0/gi2/ci0/access 6\n"
"""What the simulated machine's driver says of its instances."""


def profile_gpu(profile: str, place: int) -> Gpu:
    """A whole card of a simulated machine."""
    return _to_gpu(PROFILES[profile][place])


def profile_instance(place: int) -> Gpu:
    """A MIG instance of the card that is cut."""
    parent = PROFILES["a100-mig"][0]
    return _to_instance(parent, parent.instances[place])


class CdiNode:
    """A node with some of the specs in the folder that its runtime reads."""

    def __init__(self, folder: Path, *specs: str, minors: str = "") -> None:
        self.folder = folder / "cdi"
        self.folder.mkdir()
        self._proc = folder / "proc"
        caps = self._proc / "driver" / "nvidia-caps"
        caps.mkdir(parents=True)
        (caps / "mig-minors").write_text(minors)
        for name in specs:
            self.add_spec(name)

    def add_spec(self, name: str) -> Path:
        path = self.folder / name
        path.write_bytes((SPECS / name).read_bytes())
        return path

    def build_source(self, *, has_drm_nodes: bool = False, generator: Path | None = None) -> EditsSource:
        return EditsSource(CdiHostPaths((self.folder,), self._proc, generator), has_drm_nodes=has_drm_nodes)


def _to_gpu(gpu: StubGpu) -> Gpu:
    return Gpu(gpu.uuid, gpu.minor, gpu.minor, gpu.pci_bus_id, gpu.name, gpu.memory_mib)


def _to_instance(parent: StubGpu, part: StubInstance) -> Gpu:
    return Gpu(
        part.uuid,
        100 + part.slot,
        parent.minor,
        "",
        part.name,
        part.memory_mib,
        mig_parent=parent.uuid,
        gpu_instance=part.gpu_instance,
        compute_instance=part.compute_instance,
    )
