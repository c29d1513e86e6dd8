"""How long ago something was, in kubectl's short form: `45s`, `3m20s`, `5h`, `2d4h`."""

from __future__ import annotations

from datetime import datetime, timedelta

UNKNOWN = "<unknown>"
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY
UNIT_LETTERS = {1: "s", MINUTE: "m", HOUR: "h", DAY: "d", YEAR: "y"}

PRECISION_STEPS = (
    (2 * MINUTE, 1, 0),
    (10 * MINUTE, MINUTE, 1),
    (3 * HOUR, MINUTE, 0),
    (8 * HOUR, HOUR, MINUTE),
    (2 * DAY, HOUR, 0),
    (8 * DAY, DAY, HOUR),
    (2 * YEAR, DAY, 0),
    (8 * YEAR, YEAR, DAY),
)
"""Below this many seconds: the unit, and the smaller unit for the rest, as in kubectl."""


def format_age(timestamp: str | None, now: datetime) -> str:
    """The age of a time in the API server's form; None gives `<unknown>`."""
    if not timestamp:
        return UNKNOWN
    seconds = (now - datetime.fromisoformat(timestamp)) // timedelta(seconds=1)
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"  # clocks may differ by a moment
    _, unit, smaller = next((step for step in PRECISION_STEPS if seconds < step[0]), (0, YEAR, 0))
    text = f"{seconds // unit}{UNIT_LETTERS[unit]}"
    left = seconds % unit // smaller if smaller else 0
    return f"{text}{left}{UNIT_LETTERS[smaller]}" if left else text
