"""Text in columns: as wide as their longest cell, two spaces between them, no blanks at the end of a line."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

GAP = "  "
MARK = "!"
"""Ends the cell of a card that is in trouble, and begins the line that says why."""

_MARKED_CELL = re.compile(rf"[^\s{MARK}]+{MARK}(?=\s|$)")
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """One line per row; the columns `right` are aligned there. A row may be shorter than others."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells if at < len(row)) for at in range(max(map(len, cells), default=0))]
    lines = []
    for row in cells:
        padded = (
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        )
        lines.append(GAP.join(padded).rstrip() + "\n")
    return "".join(lines)


def printable(text: str) -> str:
    """Annotations are anybody's text: nothing in them may move a terminal's cursor or begin a line."""
    return "".join(char if char.isprintable() else "?" for char in text)


def painted(text: str) -> str:
    """What is in trouble, in red."""
    return "".join(map(_painted, text.splitlines(keepends=True)))


def _painted(line: str) -> str:
    if line.startswith(f"{MARK} "):
        return f"{_RED}{line.rstrip()}{_PLAIN}\n"
    return _MARKED_CELL.sub(lambda match: f"{_RED}{match[0]}{_PLAIN}", line)
