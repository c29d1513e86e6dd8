"""For this suite: its mark, its programs, which are built before any test's time runs, and one service per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.recipes.hpa.cluster_network import has_own_network
from tests.e2e.recipes.hpa.programs import locate_scaling_programs
from tests.e2e.recipes.hpa.scaled_service import ScaledService, run_service
from tests.support.control_plane import binaries

TEST_SECONDS = 400
"""One takes about ninety; each of its waits has as long again on a machine that is busy with something else."""
HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.recipes)
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly and any(item.path.is_relative_to(HERE) for item in session.items):
        if not has_own_network():
            raise pytest.UsageError("Services have no addresses here: run `python -m tests.e2e.recipes.hpa`")
        binaries.locate_programs()
        locate_scaling_programs()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ScaledService]:
    """The recipe's inference service, one replica, no autoscaler."""
    with run_service(tmp_path, locate_scaling_programs()) as running:
        yield running
