"""For the whole suite: few examples of a property, no garbage collection while collecting, a control plane built in time.

Every pytest process pays for what this file imports, each run of `make mutations` too: it stays small.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.support.control_plane import binaries

EXAMPLES = 40
"""Of a property that names no number. Each run draws others, so runs add up; a property whose bugs are rare names a number."""


def pytest_configure() -> None:
    """Before test modules are imported, whose settings take what they do not name from the profile."""
    settings.register_profile("suite", settings.default, max_examples=EXAMPLES)
    settings.load_profile("suite")


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
