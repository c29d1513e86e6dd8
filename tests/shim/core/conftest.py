"""The core, compiled once in each way it is tried: as it ships, and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.core.building import ADDRESSES, THREADS, build
from tests.shim.core.script import Script
from tests.shim.core.steps import started
from tests.shim.core.wire import Wire


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("core")


@pytest.fixture(scope="session")
def player(folder: Path) -> Path:
    """Plays scripts, under the address and undefined behaviour sanitizers."""
    return build(folder / "play", ["play.c"], ADDRESSES)


@pytest.fixture(scope="session")
def racer(folder: Path) -> Path:
    """Threads on one core, under the thread sanitizer."""
    return build(folder / "race", ["race.c", "small_driver.c"], THREADS)


@pytest.fixture(scope="session")
def fuzzer(folder: Path) -> Path:
    return build(folder / "fuzz", ["fuzz.c", "small_driver.c"], ADDRESSES)


@pytest.fixture(scope="session")
def stopwatch(folder: Path) -> Path:
    return build(folder / "speed", ["speed.c"], ["-O2"])


@pytest.fixture(params=[515, 525, 535, 580])
def wire(request: pytest.FixtureRequest) -> Wire:
    """A branch of each shape of RM_ALLOC."""
    return Wire(request.param)


@pytest.fixture
def script(wire: Wire) -> Script:
    """Container 0 with a limit of 4301 MiB, a client and a device in its file 0."""
    return started(wire)
