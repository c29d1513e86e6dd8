"""For the whole suite: programs that tests need are there before the first of them starts, and what was seen is said."""

from __future__ import annotations

import pytest

from tests.e2e import binaries
from tests.shim.kernel_table import KernelTable
from tests.shim.table import Table


def pytest_configure(config: pytest.Config) -> None:
    """A table of the C programs' tests, where any ran, and of the module's per kernel."""
    config.pluginmanager.register(Table(config.rootpath))
    config.pluginmanager.register(KernelTable(config))


def pytest_collection_finish(session: pytest.Session) -> None:
    """A cold build takes minutes and a test has two; where no end-to-end test runs, nobody needs Go."""
    is_wanted = any(item.get_closest_marker("e2e") for item in session.items)
    if is_wanted and not session.config.option.collectonly:
        binaries.locate()
