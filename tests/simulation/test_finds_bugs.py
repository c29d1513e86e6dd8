"""The simulation finds each of the bugs in `bugs.py` within its budget; without them it would prove little."""

from __future__ import annotations

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.run import a_case, play
from tests.simulation.world import Surroundings, surroundings

SEEDS = 120
"""A sixth of what `test_simulation` plays."""


@pytest.fixture(scope="module")
def around() -> Surroundings:
    return surroundings()


@pytest.mark.parametrize("name", BUGS)
def test_it_is_found(name: str, around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)
    assert any(play(a_case(seed), around).failure for seed in range(SEEDS))
