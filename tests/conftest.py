"""For the whole suite: programs that tests need are there before the first of them starts, and what was seen is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machine import kernels
from tests.machine.debug import BuildError
from tests.machine.packages import NoPackagesError
from tests.shim.kernel_result_table import KernelResultTable
from tests.shim.result_table import ShimResultTable
from tests.support.control_plane import binaries

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """A table of the C programs' tests, where any ran, and of the module's per kernel."""
    config.pluginmanager.register(ShimResultTable(config.rootpath))
    config.pluginmanager.register(KernelResultTable(config))


def pytest_collection_finish(session: pytest.Session) -> None:
    """A cold build takes minutes and a test has two; where nobody uses what is built, nobody needs Go, or a mirror."""
    if session.config.option.collectonly:
        return
    if any(item.get_closest_marker("e2e") for item in session.items):
        binaries.locate_programs()
    if any(item.get_closest_marker("shim") and _boots(item.path) for item in session.items):
        _fetch_kernels()


def _fetch_kernels() -> None:
    try:
        for name in kernels.NAMES:
            kernels.prepare_kernel(name)
    except (NoPackagesError, BuildError) as error:
        raise pytest.UsageError(str(error)) from error


def _boots(test: Path) -> bool:
    """A kernel, in a virtual machine."""
    return any(test.is_relative_to(HERE / each) for each in ("machine", "shim/kmod", "shim/driver/test_kernel.py"))
