"""For the whole suite: the programs of the end-to-end tests are there before the first of them starts."""

from __future__ import annotations

import pytest

from tests.e2e import binaries


def pytest_collection_finish(session: pytest.Session) -> None:
    """A cold build takes minutes and a test has two; where no end-to-end test runs, nobody needs Go."""
    is_wanted = any(item.get_closest_marker("e2e") for item in session.items)
    if is_wanted and not session.config.option.collectonly:
        binaries.locate()
