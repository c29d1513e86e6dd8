"""The hook, built from source once: as it ships, and under the sanitizers."""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.shim.preload.long_wait import LongWait, start_long_wait
from tests.support.cgroup_folders import CgroupFolder, list_hierarchies

HERE = Path(__file__).parent
SOURCES = Path(__file__).parents[2] / "shim" / "hook"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hook")
    command = ["make", "--silent", "-C", str(SOURCES), "hook", "sanitized", f"OUT={folder}"]
    subprocess.run(command, check=True, timeout=100)
    return folder


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Mark the tests of this folder before `-m` looks at marks, and put the test of the long wait last in any order."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.shim)
    yield
    items.sort(key=_is_long)


def _is_long(item: pytest.Item) -> bool:
    return item.path.name == "test_long_wait.py"


@pytest.fixture(scope="session", autouse=True)
def long_wait(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongWait | None]:
    """Started with the very first test, if the test that checks it is selected."""
    if not any(map(_is_long, request.session.items)):
        yield None
        return
    with start_long_wait(tmp_path_factory.mktemp("long-wait")) as begun:
        yield begun


@pytest.fixture
def cgroup() -> Iterator[CgroupFolder]:
    """A real cgroup, named as a container's, in the tree that this kernel uses; removed afterwards."""
    folder = CgroupFolder(list_hierarchies()[0])
    yield folder
    folder.remove()
