"""The driver under sanitizers, on a folder of its own for each test; its users are compiled once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.driver.build import FakeDriverPrograms, build_fake_driver
from tests.fakes.driver.driver import FakeCard, FakeDriver

TWO_CARDS = (
    FakeCard("GPU-11111111-2222-3333-4444-555555555555", memory_mib=16130, minor=1),
    FakeCard("GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", memory_mib=1024, minor=0),
)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> FakeDriverPrograms:
    return build_fake_driver(tmp_path_factory.mktemp("programs"))


@pytest.fixture
def driver(programs: FakeDriverPrograms, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FakeDriver]:
    """Two cards whose places differ from their minors; the version comes by indirect parameters, 580 otherwise."""
    version = getattr(request, "param", "580.95.05")
    with FakeDriver(programs.sanitized_server, tmp_path / "dev", cards=TWO_CARDS, version=version) as serving:
        yield serving
        assert serving.returncode() is None, "the driver crashed, or a sanitizer complained: see stderr"
