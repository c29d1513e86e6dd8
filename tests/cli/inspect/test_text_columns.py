"""Tables that are cut to a terminal's width, and only there."""

from __future__ import annotations

import pytest

from vrampack.cli.inspect.text_columns import align_columns
from vrampack.cli.output import find_terminal_width

ROWS = (
    ("NODE", "UNITS", "UUID", "PODS"),
    ("gpu-with-a-long-name-0", "15", "GPU-0123456789abcdef", "ml/a," * 8 + "ml/b"),
)
# 22 + 5 + 20 + 44 characters and three gaps of two: 97
NARROWEST = 22 + 5 + 12 + 12 + 6
WIDTHS = {
    "as wide as needed": (97, ["GPU-0123456789abcdef", "ml/a," * 8 + "ml/b"]),
    "the widest column is cut": (80, ["GPU-0123456789abcdef", ("ml/a," * 6)[:26] + "…"]),
    "then the next": (60, ["GPU-0123456789…", "ml/a,ml/a,m…"]),
    "names are never cut": (10, ["GPU-0123456…", "ml/a,ml/a,m…"]),
}


@pytest.mark.parametrize(("width", "want"), WIDTHS.values(), ids=WIDTHS)
def test_the_widest_columns_of_text_are_cut(width: int, want: list[str]) -> None:
    made = align_columns(ROWS, right_columns={1}, max_width=width).splitlines()
    assert made[1].split() == ["gpu-with-a-long-name-0", "15", *want]
    assert max(map(len, made)) <= max(width, NARROWEST)


def test_a_pipe_cuts_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    del capsys  # in whose place stdout is no terminal
    monkeypatch.setenv("COLUMNS", "60")
    assert find_terminal_width() is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert find_terminal_width() == 60
