"""The clang static analyzer has nothing to say about any of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.shim.core.building import CORE, TESTS

pytestmark = pytest.mark.shim

FOLDERS = [CORE, TESTS]
"""All C files of each; a folder's own headers and the core's are found."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(CORE.parents[1])))
def test_the_analyzer_is_content(folder: Path) -> None:
    sources = sorted(map(str, folder.glob("*.c")))
    assert sources
    command = [
        "clang",
        "--analyze",
        "-Xanalyzer",
        "-analyzer-output=text",
        "-std=c11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
    ]
    done = subprocess.run(
        [*command, f"-I{folder}", f"-I{CORE}", *sources], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
