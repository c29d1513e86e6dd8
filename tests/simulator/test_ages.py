"""Ages as kubectl writes them: two units while the first is small."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from vrampack.simulator.human_duration import format_age

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400

AGES = {
    "nothing": (0, "0s"),
    "one clock a little ahead": (-1, "0s"),
    "the future": (-2, "<invalid>"),
    "seconds up to two minutes": (119, "119s"),
    "minutes": (2 * MINUTE, "2m"),
    "minutes and seconds": (9 * MINUTE + 59, "9m59s"),
    "minutes alone from ten": (10 * MINUTE + 59, "10m"),
    "minutes up to three hours": (3 * HOUR - 1, "179m"),
    "hours": (3 * HOUR + 59, "3h"),
    "hours and minutes": (7 * HOUR + 5 * MINUTE, "7h5m"),
    "hours alone from eight": (8 * HOUR + 5 * MINUTE, "8h"),
    "hours up to two days": (2 * DAY - 1, "47h"),
    "days and hours": (2 * DAY + 4 * HOUR, "2d4h"),
    "days alone from eight": (8 * DAY + 4 * HOUR, "8d"),
    "days up to two years": (2 * YEAR - 1, "729d"),
    "years and days": (2 * YEAR + DAY, "2y1d"),
    "years alone from eight": (9 * YEAR + DAY, "9y"),
}


@pytest.mark.parametrize(("seconds", "wanted"), AGES.values(), ids=AGES)
def test_an_age_is_formatted(seconds: int, wanted: str) -> None:
    assert format_age((NOON - timedelta(seconds=seconds)).isoformat(), NOON) == wanted


@pytest.mark.parametrize("moment", [None, ""])
def test_a_missing_time_has_an_unknown_age(moment: str | None) -> None:
    assert format_age(moment, NOON) == "<unknown>"
