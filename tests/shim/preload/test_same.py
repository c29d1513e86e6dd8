"""One program under library and module: this is the library. `tests/shim/kmod/test_same.py` runs the same in a kernel."""

from __future__ import annotations

import pytest

from tests.fakes.driver.build import FakeDriverPrograms
from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.preload.building import PreloadTestPrograms
from tests.shim.preload.container import PreloadedContainer
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.support.limit_cases import CASES, SURFACE_VERSIONS, SURFACES, LimitCase


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_library_answers_as_in_the_shared_cases(
    container: PreloadedContainer,
    programs: FakeDriverPrograms,
    extra: PreloadTestPrograms,
    agent: ScriptedAgent,
    case: LimitCase,
) -> None:
    program = extra.steps if case.program == "steps" else programs.folder / case.program
    ended = container.run(program, *case.arguments)
    assert ended.lines == list(case.said)


@pytest.mark.parametrize("driver", SURFACE_VERSIONS, indirect=True)
@pytest.mark.parametrize("case", SURFACES, ids=str)
def test_the_library_answers_as_in_the_shared_cases_with_older_drivers(
    container: PreloadedContainer,
    programs: FakeDriverPrograms,
    agent: ScriptedAgent,
    driver: FakeDriver,
    case: LimitCase,
) -> None:
    """The driver has given out only what was asked for in a way that is counted."""
    agent.driver_version = driver.version
    ended = container.run(programs.folder / case.program, "--driver", str(driver.branch), *case.arguments)
    assert driver.state().cards[0].peak <= agent.peak_bytes <= case.limit_mib * MIB
    assert ended.lines == list(case.said)
