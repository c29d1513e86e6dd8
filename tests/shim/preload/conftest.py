"""The library as it ships, the driver in user space, and a container of 4301 MiB on one card of 16130."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.driver.build import FakeDriverPrograms, build_fake_driver
from tests.fakes.driver.driver import MIB, FakeDriver
from tests.fakes.driver.modules import VERSION
from tests.shim.preload.building import PreloadTestPrograms, build_extra, build_library
from tests.shim.preload.container import LIBRARY, PreloadedContainer
from tests.shim.preload.scripted_agent import ScriptedAgent

BUILT = Path(__file__).parents[3] / "build"
LIMIT_MIB = 4301


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("preload"))


@pytest.fixture(scope="session")
def programs() -> FakeDriverPrograms:
    return build_fake_driver(BUILT)


@pytest.fixture(scope="session")
def extra(tmp_path_factory: pytest.TempPathFactory) -> PreloadTestPrograms:
    return build_extra(tmp_path_factory.mktemp("extra"))


@pytest.fixture
def driver(programs: FakeDriverPrograms, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FakeDriver]:
    """The version comes by indirect parameters, 580 otherwise."""
    version = getattr(request, "param", VERSION)
    with FakeDriver(programs.server, tmp_path / "driver", version=version) as started:
        yield started


@pytest.fixture
def container(library: Path, driver: FakeDriver, tmp_path: Path) -> PreloadedContainer:
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(library, site / LIBRARY)
    return PreloadedContainer(site, driver.folder)


@pytest.fixture
def absent_agent(container: PreloadedContainer) -> ScriptedAgent:
    """Not serving yet: the test says when."""
    return ScriptedAgent(container.socket, LIMIT_MIB * MIB)


@pytest.fixture
def agent(absent_agent: ScriptedAgent) -> Iterator[ScriptedAgent]:
    with absent_agent.serving():
        yield absent_agent
