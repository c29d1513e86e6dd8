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


def test_the_library_exports_exactly_four_names(symbols: list[list[str]]) -> None:
    assert {name for *_, kind, name in symbols if kind == "T"} == EXPORTED
    assert {kind for *_, kind, _ in symbols} == {"T", "w"}


def test_the_library_needs_two_weak_unversioned_names(symbols: list[list[str]]) -> None:
    """A name without a version is found in glibc of any age, and in musl."""
    assert {(name, kind) for *_, kind, name in symbols if kind != "T"} == WANTED


def test_the_library_needs_no_other_library_and_no_thread_local_storage(library: Path) -> None:
    dynamic = _said("readelf", "--wide", "--dynamic", str(library))
    segments = _said("readelf", "--wide", "--segments", str(library))
    assert "(NEEDED)" not in dynamic
    assert "VERNEED" not in dynamic
    assert "TLS" not in segments
    assert "NODELETE" in dynamic


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout
