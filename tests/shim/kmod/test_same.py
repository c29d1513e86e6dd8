"""One program under library and module: both give it the same answers."""

from __future__ import annotations

import pytest

from tests.shim.kmod.world import KmodWorld
from tests.support.limit_cases import CASES, LimitCase


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_module_answers_as_in_the_shared_cases(world: KmodWorld, case: LimitCase) -> None:
    place = world.limited("a", {0: case.limit_mib})
    ended = place.run(case.program, *case.arguments)
    world.forget()
    assert ended.lines == list(case.said)
