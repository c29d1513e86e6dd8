"""The files of each C program form layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.file_calls import find_include_circle

SHIM = Path(__file__).parent.parent.parent / "shim"


@pytest.mark.parametrize("folder", ["core", "kmod", "preload", "hook"])
def test_no_includes_form_a_circle(folder: str) -> None:
    assert find_include_circle(SHIM / folder) == set()
