"""The core, compiled once in each way it is tried: as it ships, and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.core.building import ADDRESSES, THREADS, build_program
from tests.shim.core.script import CoreScript
from tests.shim.core.steps import start_script
from tests.shim.core.wire import CoreWire


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("core")


@pytest.fixture(scope="session")
def runner(folder: Path) -> Path:
    """Runs scripts, under the address and undefined behaviour sanitizers."""
    return build_program(folder / "run_script", ["run_script.c"], ADDRESSES)


@pytest.fixture(scope="session")
def racer(folder: Path) -> Path:
    """Threads on one core, under the thread sanitizer."""
    return build_program(folder / "race", ["race.c", "small_driver.c"], THREADS)


@pytest.fixture(scope="session")
def fuzzer(folder: Path) -> Path:
    return build_program(folder / "fuzz", ["fuzz.c", "small_driver.c"], ADDRESSES)


@pytest.fixture(scope="session")
def stopwatch(folder: Path) -> Path:
    return build_program(folder / "speed", ["speed.c"], ["-O2"])


@pytest.fixture(params=[515, 525, 535, 580])
def wire(request: pytest.FixtureRequest) -> CoreWire:
    """A branch of each shape of RM_ALLOC."""
    return CoreWire(request.param)


@pytest.fixture
def script(wire: CoreWire) -> CoreScript:
    """Container 0 with a limit of 4301 MiB, a client and a device in its file 0."""
    return start_script(wire)
