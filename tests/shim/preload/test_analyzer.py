"""The clang static analyzer has nothing to say about the library."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.shim

LIBRARY = Path(__file__).parents[3] / "shim" / "preload"


def test_the_analyzer_is_content() -> None:
    sources = sorted(map(str, LIBRARY.glob("*.c")))
    assert sources
    command = ["clang", "--analyze", "-Xanalyzer", "-analyzer-output=text", "-std=c11", "-ffreestanding", *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
