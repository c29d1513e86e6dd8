"""A program that holds memory of the driver until it is ended."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fakes.driver.driver import FakeDriver


def hold_memory(app: Path, driver: FakeDriver, *words: str) -> subprocess.Popen[str]:
    """The program, once it holds what it was told to."""
    command = [str(app), "--control", str(driver.control), "--hold", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line == "holding\n":
            return process
    raise RuntimeError(f"{app} ended with {process.wait()}")
