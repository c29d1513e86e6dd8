"""For the whole suite: collection without pauses of the garbage collector, and a control plane that is built in time.

Every pytest process pays for what this file imports, each run of `make mutations` too: it stays small.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from tests.support.control_plane import binaries


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
    """A cold build takes minutes and a test has two; where nobody uses what is built, nobody needs Go."""
    if session.config.option.collectonly:
        return
    if any(item.get_closest_marker("e2e") for item in session.items):
        binaries.locate_programs()
