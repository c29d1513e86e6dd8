"""For the whole suite: no garbage collection while collecting, and a control plane built in time.

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
    """A cold build takes minutes and a test has two; a run without tests that use the programs must not need Go."""
    if session.config.option.collectonly:
        return
    if any(item.get_closest_marker(name) for item in session.items for name in ("e2e", "recipes")):
        binaries.locate_programs()
