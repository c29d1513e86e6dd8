"""The rows D1, D2... of docs/gpu-verification.md: none is missing, and those that the code refers to exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_rows_are_numbered_without_a_gap() -> None:
    rows = [int(row) for row in re.findall(r"^\| D(\d+) \|", document(), re.MULTILINE)]
    assert rows == list(range(1, len(rows) + 1))
    assert rows


def test_every_row_named_in_the_code_exists() -> None:
    sources = (ROOT / "tests" / "fakes" / "driver").rglob("*.[ch]")
    named = {row for source in sources for row in re.findall(r"\bD\d+\b", source.read_text())}
    assert len(named) > 5
    assert {row for row in named if f"\n| {row} |" not in document()} == set()


def document() -> str:
    return (ROOT / "docs" / "gpu-verification.md").read_text()
