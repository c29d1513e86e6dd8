"""A booted machine for each driver and kernel, the driver loaded, our module not; a second kind with the card opened.

Session fixtures that carry the combination's name: pytest runs all tests of one before it boots the next, in one worker.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.driver.real_driver import (
    COMBINATIONS,
    FILES_VARIABLE,
    HOPPER,
    OPENED,
    REGISTRY,
    DriverOnKernel,
    RealDriver,
    boot_machine,
    machine_files,
    opened_files,
)
from tests.fakes.driver.build import CALLS, FLAGS, build_static
from tests.fakes.driver.build import PROGRAMS as DRIVER_PROGRAMS
from tests.machine.program import GuestStart
from tests.machine.python import libraries
from tests.support.build_cache import build_once, fingerprint_of

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
BUILT = HERE.parents[1] / "build"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what lies in this folder, before `-m` looks at marks; tests of one machine stay in one worker."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.driver)
            if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
                item.add_marker(pytest.mark.xdist_group(_name_machine(item.callspec.params)))


def pytest_collection_finish(session: pytest.Session) -> None:
    is_run = not session.config.option.collectonly and any(map(_is_of_this_suite, session.items))
    if is_run and FILES_VARIABLE not in os.environ:
        raise pytest.UsageError("NVIDIA's libraries are fetched by `python -m tests.driver [pytest's options]`")


def _name_machine(parameters: Mapping[str, object]) -> str:
    """By the session fixtures that boot one."""
    return next(f"{name} {parameters[name]}" for name in ("which", "opened_machine") if name in parameters)


def _is_of_this_suite(item: pytest.Item) -> bool:
    return item.get_closest_marker("driver") is not None


@pytest.fixture(scope="session")
def programs() -> list[Path]:
    """The programs of this folder and those of the simulated driver, all without a C library."""
    calls = [DRIVER_PROGRAMS / name for name in (*CALLS, "rm.h", "nv.h")]
    made_of = fingerprint_of(*sorted(PROGRAMS.glob("*.c")), *calls, Path(__file__))
    made = build_once(BUILT / f"driver-programs-{made_of}", compile_programs)
    return [*sorted(made.iterdir()), *(each for each in build_static(BUILT).iterdir() if each.name != "nvidia-smi")]


def compile_programs(folder: Path) -> None:
    calls = [str(DRIVER_PROGRAMS / name) for name in CALLS]
    kinds = {"libraries": ["-ldl"], "pins": ["-static", f"-I{DRIVER_PROGRAMS}", *calls]}
    for source in PROGRAMS.glob("*.c"):
        command = [
            "gcc",
            *FLAGS,
            "-O1",
            "-o",
            str(folder / source.stem),
            str(source),
            *kinds.get(source.stem, ["-static"]),
        ]
        subprocess.run(command, check=True, timeout=100)


@pytest.fixture(scope="session", params=COMBINATIONS, ids=str)
def which(request: pytest.FixtureRequest) -> DriverOnKernel:
    found: DriverOnKernel = request.param
    return found


@pytest.fixture(scope="session")
def machine_with_driver(which: DriverOnKernel, programs: list[Path]) -> Iterator[RealDriver]:
    files = machine_files(which)
    for program in programs:
        files |= libraries(program)
    with boot_machine(which, programs, files) as machine:
        driver = RealDriver(machine, which)
        driver.load()
        yield driver
        driver.unload()
        machine.assert_quiet()


@pytest.fixture
def driver(machine_with_driver: RealDriver) -> RealDriver:
    """Our module is not loaded."""
    machine_with_driver.unload_shim()
    return machine_with_driver


@pytest.fixture(scope="session", params=OPENED, ids=lambda each: f"opened-{each}")
def opened_machine(
    request: pytest.FixtureRequest, programs: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealDriver]:
    """A program keeps the card open meanwhile, since each first open takes seconds."""
    which: DriverOnKernel = request.param
    files = opened_files(which, tmp_path_factory.mktemp("library"))
    for program in programs:
        files |= libraries(program)
    with boot_machine(which, programs, files, is_opened=True) as machine:
        driver = RealDriver(machine, which)
        driver.load(*HOPPER, registry=REGISTRY)
        with machine.running("app", "--hold", start=GuestStart(env={"RM_BRANCH": which.branch})) as holder:
            holder.wait_for_line("holding", timeout=120)
            yield driver
        holder.wait_for_end()
        driver.unload()
        machine.assert_quiet()


@pytest.fixture
def card(opened_machine: RealDriver) -> RealDriver:
    """A card that opens; our module is not loaded."""
    opened_machine.unload_shim()
    return opened_machine
