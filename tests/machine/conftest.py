"""A kernel module with deliberate mistakes, built for each kernel."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.driver.modules import OPTIONS
from tests.machine.kernels import Kernel

HERE = Path(__file__).parent
SOURCES = HERE / "mistakes"
MISTAKES = "/lib/mistakes.ko"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks all tests of this folder before `-m` selects by mark, so that no test can lack it."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.shim)


@pytest.fixture(scope="session")
def mistakes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kernel], Path]:
    """Builds the module for a kernel."""

    def build(kernel: Kernel) -> Path:
        folder = tmp_path_factory.mktemp("mistakes") / "sources"
        shutil.copytree(SOURCES, folder)
        command = ["make", "--silent", "-C", str(kernel.build), f"M={folder}", *OPTIONS, "modules"]
        subprocess.run(command, check=True, timeout=100)
        return folder / "mistakes.ko"

    return build
