"""The module that makes mistakes, for the kernels on which they are made."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.driver.modules import OPTIONS
from tests.machine.kernels import Kernel

SOURCES = Path(__file__).parent / "mistakes"
MISTAKES = "/lib/mistakes.ko"


@pytest.fixture(scope="session")
def mistakes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kernel], Path]:
    """Compiled for that kernel."""

    def build(kernel: Kernel) -> Path:
        folder = tmp_path_factory.mktemp("mistakes") / "sources"
        shutil.copytree(SOURCES, folder)
        command = ["make", "--silent", "-C", str(kernel.build), f"M={folder}", *OPTIONS, "modules"]
        subprocess.run(command, check=True, timeout=100)
        return folder / "mistakes.ko"

    return build
