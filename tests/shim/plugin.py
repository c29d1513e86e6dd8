"""For `python -m tests.shim`: kernels are prepared before the first test needs one, and results are printed as tables.

A plugin and not a conftest: it has to see the items of tests/machine, which are collected before this folder is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machine import kernels
from tests.machine.debug import BuildError
from tests.machine.packages import NoPackagesError
from tests.shim.kernel_result_table import KernelResultTable
from tests.shim.result_table import ShimResultTable

TESTS = Path(__file__).parents[1]
BOOTING = tuple(TESTS / each for each in ("machine", "shim/kmod", "shim/driver/test_kernel.py"))
"""Tests that boot a kernel in a virtual machine."""
MODULE = TESTS / "shim" / "kmod"
NO_KERNEL = "none"
"""For `--kernel`: the module's tests that need no booted kernel, such as those of its style."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kernel",
        action="append",
        choices=(*kernels.NAMES, NO_KERNEL),
        help="of the kernel module's tests only those on this kernel; may be given again",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ShimResultTable(config.rootpath))
    config.pluginmanager.register(KernelResultTable(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if wanted := config.getoption("kernel"):
        others = {item for item in items if item.path.is_relative_to(MODULE) and _find_kernel(item) not in wanted}
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetching a kernel, or building one, takes minutes, and a test may take only two."""
    if session.config.option.collectonly:
        return
    if any(item.get_closest_marker("shim") and _boots_kernel(item.path) for item in session.items):
        _fetch_kernels()


def _fetch_kernels() -> None:
    try:
        for name in kernels.NAMES:
            kernels.prepare_kernel(name)
    except (NoPackagesError, BuildError) as error:
        raise pytest.UsageError(str(error)) from error


def _find_kernel(item: pytest.Item) -> str:
    """By its name; `NO_KERNEL` for a test that has none."""
    spec = getattr(item, "callspec", None)
    return NO_KERNEL if spec is None else str(spec.params.get("kernel", NO_KERNEL))


def _boots_kernel(test: Path) -> bool:
    return any(test.is_relative_to(each) for each in BOOTING)
