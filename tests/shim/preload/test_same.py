"""One program, two forms: this one is the library's. `tests/shim/kmod/test_same.py` plays the same in a kernel."""

from __future__ import annotations

import pytest

from tests.fakes.driver.build import Built
from tests.shim.preload.building import Extra
from tests.shim.preload.container import Container
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.shim.same import CASES, Case

pytestmark = pytest.mark.shim


@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_a_container(container: Container, programs: Built, extra: Extra, agent: ScriptedAgent, case: Case) -> None:
    program = extra.steps if case.program == "steps" else programs.folder / case.program
    ended = container.run(program, *case.arguments)
    assert ended.lines == list(case.said)
