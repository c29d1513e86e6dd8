"""A booted machine per kernel, with the modules and programs of these tests in it. Nothing is loaded yet.

Session fixtures that carry the kernel's name: pytest runs all tests of one kernel before it boots the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.driver.build import build_static
from tests.fakes.driver.modules import ONE_DEVICE_VERSION, VERSION, FakeDriverModules, build_modules
from tests.machine import kernels
from tests.machine.archive import Content
from tests.machine.kernels import Kernel
from tests.machine.machine import VirtualMachine
from tests.shim.kernel_result_table import RELEASES
from tests.shim.kmod.building import INTERPOSER, SPINNER, TEXTDUMP, VRAMPACK, build_module
from tests.shim.kmod.world import KmodWorld

BUILT = Path(__file__).parents[3] / "build"
UNKNOWN_VERSION = "470.1"
"""The version of a driver whose layouts are not known."""


RENAMED = "KCFLAGS=-Werror -Duvm_va_range_create_mmap=uvm_va_range_create_elsewhere"
"""For an nvidia-uvm that cannot be guarded."""
SECOND_MODULE = "/lib/second.ko"
"""The module by another name, so that both can be loaded."""


@dataclass(frozen=True, slots=True)
class ModulesOfTests:
    """For one kernel: the module, three modules that are not ours, and four drivers."""

    shim: Path
    interposer: Path
    spinner: Path
    textdump: Path
    new: FakeDriverModules
    old: FakeDriverModules
    unknown: FakeDriverModules
    strange: FakeDriverModules

    def files(self) -> dict[str, Content]:
        """By where they are in a machine: /lib/vrampack.ko, /lib/new/nvidia.ko .."""
        drivers = {"new": self.new, "old": self.old, "unknown": self.unknown, "strange": self.strange}
        found: dict[str, Content] = {"/lib/vrampack.ko": self.shim, "/lib/interposer.ko": self.interposer}
        found |= {"/lib/spinner.ko": self.spinner, "/lib/textdump.ko": self.textdump}
        found[SECOND_MODULE] = self.shim.read_bytes().replace(b"vrampack", b"vrampacl")
        for name, driver in drivers.items():
            found |= {f"/lib/{name}/nvidia.ko": driver.nvidia, f"/lib/{name}/nvidia-uvm.ko": driver.uvm}
        return found


@pytest.fixture(scope="session", params=kernels.NAMES)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    found = kernels.prepare_kernel(str(request.param))
    request.config.stash.setdefault(RELEASES, {})[found.name] = found.release
    return found


def modules_for(kernel: Kernel) -> ModulesOfTests:
    """Two at a time: each compiles for some seconds."""
    drivers = ((VERSION, ()), (ONE_DEVICE_VERSION, ()), (UNKNOWN_VERSION, ()), (VERSION, (RENAMED,)))
    with ThreadPoolExecutor(2) as pool:
        own = (pool.submit(build_module, BUILT, kernel, each) for each in (VRAMPACK, INTERPOSER, SPINNER, TEXTDUMP))
        shim, interposer, spinner, textdump = own
        built = [pool.submit(build_modules, BUILT, kernel.build, *which, arguments=more) for *which, more in drivers]
        results = (each.result() for each in built)
        return ModulesOfTests(shim.result(), interposer.result(), spinner.result(), textdump.result(), *results)


@pytest.fixture(scope="session")
def compiling(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[ModulesOfTests]]]:
    """By kernel, in the order in which they are wanted: the next one's are compiled while this one's tests run."""
    specs = (getattr(item, "callspec", None) for item in request.session.items)
    names = dict.fromkeys(str(spec.params["kernel"]) for spec in specs if spec is not None and "kernel" in spec.params)
    with ThreadPoolExecutor(1) as pool:
        yield {name: pool.submit(lambda name: modules_for(kernels.prepare_kernel(name)), name) for name in names}


@pytest.fixture(scope="session")
def modules(kernel: Kernel, compiling: Mapping[str, Future[ModulesOfTests]]) -> ModulesOfTests:
    return compiling[kernel.name].result()


@pytest.fixture(scope="session")
def programs() -> list[Path]:
    return sorted(build_static(BUILT).iterdir())


@pytest.fixture(scope="session")
def machine(kernel: Kernel, modules: ModulesOfTests, programs: list[Path]) -> Iterator[VirtualMachine]:
    """Its kernel must not have complained when the last test has ended."""
    with VirtualMachine(kernel, programs=programs, files=modules.files()) as booted:
        yield booted
        booted.assert_no_leaks()
        booted.assert_quiet()


@pytest.fixture
def world(machine: VirtualMachine) -> KmodWorld:
    """The newer driver, nvidia-uvm and the module are loaded, and no container is limited."""
    found = KmodWorld(machine)
    found.load()
    return found


@pytest.fixture
def empty(machine: VirtualMachine) -> Iterator[KmodWorld]:
    """Nothing is loaded, before or afterwards."""
    world = KmodWorld(machine)
    world.unload()
    yield world
    world.unload()


@pytest.fixture(scope="session")
def old_world(compiling: Mapping[str, Future[ModulesOfTests]], programs: list[Path]) -> Iterator[KmodWorld]:
    """A machine with cgroup v1 and nothing else, where identity is a PID namespace; one kernel shows it."""
    kernel = kernels.prepare_kernel("6.1")
    coming = compiling.get(kernel.name)
    built = modules_for(kernel) if coming is None else coming.result()
    with VirtualMachine(kernel, programs=programs, files=built.files(), cgroups=1) as booted:
        world = KmodWorld(booted)
        world.load()
        yield world
        booted.assert_quiet()
