"""The embedded scheduler agrees with a real one on each of its recorded decisions (tests/simulator/decisions)."""

from __future__ import annotations

import pytest

from tests.support.scheduler_decisions.comparison import find_disagreements
from tests.support.scheduler_decisions.recording import read_decisions


@pytest.mark.parametrize(("name", "count"), [("shipped", 2000), ("serial", 400)])
def test_the_embedded_scheduler_agrees_with_recorded_decisions(name: str, count: int) -> None:
    recording = read_decisions(name)
    assert len(recording.decisions) == count
    assert list(find_disagreements(recording)) == []
