"""What the library needs of the program that it is loaded into: nothing, so that it loads under every libc."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

EXPORTED = {"close", "ioctl", "mmap", "mmap64"}
WANTED = {("dlsym", "w"), ("__errno_location", "w")}
"""They are weak: in a program without them the library makes plain system calls."""


@pytest.fixture(scope="module")
def symbols(library: Path) -> list[list[str]]:
    table = _said("nm", "--dynamic", "--with-symbol-versions", str(library))
    return [line.split() for line in table.splitlines()]


def test_exports_the_four_names_and_no_other(symbols: list[list[str]]) -> None:
    assert {name for *_, kind, name in symbols if kind == "T"} == EXPORTED
    assert {kind for *_, kind, _ in symbols} == {"T", "w"}


def test_wants_two_names_weakly_and_no_version_of_them(symbols: list[list[str]]) -> None:
    """A name without a version is found in glibc of any age, and in musl."""
    assert {(name, kind) for *_, kind, name in symbols if kind != "T"} == WANTED


def test_wants_no_other_library_and_has_nothing_of_a_threads_own(library: Path) -> None:
    dynamic = _said("readelf", "--wide", "--dynamic", str(library))
    segments = _said("readelf", "--wide", "--segments", str(library))
    assert "(NEEDED)" not in dynamic
    assert "VERNEED" not in dynamic
    assert "TLS" not in segments
    assert "NODELETE" in dynamic


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout
