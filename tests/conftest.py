"""For the whole suite: no garbage collection while collecting, a control plane built in time, and the CPU time it took.

Every pytest process pays for what this file imports, each run of `make mutations` too: it stays small.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest

from tests.support.control_plane import binaries

CPU_BUDGET_SECONDS = 300
"""Of `make test`, on all cores together: two and a half minutes on two. More is told, and is no failure."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting makes a million objects that stay: to look through them again and again is a sixth of its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """A cold build takes minutes and a test has two; a run without tests that use the programs must not need Go."""
    if session.config.option.collectonly:
        return
    if any(item.get_closest_marker(name) for item in session.items for name in ("e2e", "recipes")):
        binaries.locate_programs()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """After the workers have ended, so that their time counts, and that of the processes they waited for."""
    if config.args == ["tests"] and config.getoption("numprocesses", None):
        seconds = sum(os.times()[:4])
        terminalreporter.write_line(f"make test: {seconds:.0f} CPU s of {CPU_BUDGET_SECONDS}")
