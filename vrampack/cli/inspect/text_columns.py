"""Text in columns, each as wide as its longest cell, with two spaces between them and no trailing blanks."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

GAP = "  "
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
MIN_TEXT_WIDTH = 12
"""A narrower column says nothing; then lines are longer than the terminal."""
PROBLEM_MARK = "!"
"""Ends the cell of a card with a problem, and begins the line that explains it."""

_MARKED_CELL = re.compile(rf"[^\s{PROBLEM_MARK}]+{PROBLEM_MARK}(?=\s|$)")
_RED, _RESET = "\x1b[31m", "\x1b[0m"


def align_columns(
    rows: Sequence[Sequence[str]], *, right_columns: Collection[int] = (), max_width: int | None = None
) -> str:
    """One line per row; `right_columns` are right-aligned. A row may be shorter than others.

    Where lines would be longer than `max_width`, the widest of the other columns are cut, but for the first, which has
    the names.
    """
    cells = [[replace_unprintable(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells if at < len(row)) for at in range(max(map(len, cells), default=0))]
    if max_width is not None:
        _narrow_columns(widths, [at for at in range(1, len(widths)) if at not in right_columns], max_width)
    lines = []
    for row in cells:
        padded = (
            cell.rjust(width) if at in right_columns else _cut_text(cell, width).ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        )
        lines.append(GAP.join(padded).rstrip() + "\n")
    return "".join(lines)


def _narrow_columns(widths: list[int], text_columns: Collection[int], max_width: int) -> None:
    """Take from the widest text column, column by column, what a line is too long."""
    for at in sorted(text_columns, key=lambda at: -widths[at]):
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - max_width
        if excess > 0:
            widths[at] = max(widths[at] - excess, min(widths[at], MIN_TEXT_WIDTH))


def _cut_text(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + ELLIPSIS


def replace_unprintable(text: str) -> str:
    """Make any text safe to print: text from annotations must not move a terminal's cursor or begin a line."""
    return "".join(char if char.isprintable() else "?" for char in text)


def color_problems(text: str) -> str:
    """Colour problems red."""
    return "".join(map(_color_line, text.splitlines(keepends=True)))


def _color_line(line: str) -> str:
    if line.startswith(f"{PROBLEM_MARK} "):
        return f"{_RED}{line.rstrip()}{_RESET}\n"
    return _MARKED_CELL.sub(lambda match: f"{_RED}{match[0]}{_RESET}", line)
