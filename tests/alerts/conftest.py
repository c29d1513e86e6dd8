"""For this suite: its mark, and its programs, which are built before any test's time runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alerts.programs import locate_programs
from tests.alerts.scene import Programs

TEST_SECONDS = 300
"""A scenario takes ten to forty; each of its waits has 90 s on a machine that is busy with something else."""
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.alerts)
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


def pytest_collection_finish(session: pytest.Session) -> None:
    """A cold build takes minutes, and a test has two."""
    if not session.config.option.collectonly and any(item.get_closest_marker("alerts") for item in session.items):
        locate_programs()


@pytest.fixture(scope="session")
def programs() -> Programs:
    return locate_programs()
