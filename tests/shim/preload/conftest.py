"""The library, built from source once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "shim" / "preload"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preload")
    subprocess.run(["make", "--silent", "-C", str(SOURCES), "preload", f"OUT={folder}"], check=True, timeout=100)
    return folder / "libvrampack.so"
