"""The agent is upgraded, killed, slow or of another version: the limit holds, and programs wait rather than fail."""

from __future__ import annotations

import pytest

from tests.e2e.waiting import until
from tests.fakes.driver.driver import MIB
from tests.shim.preload.building import Extra, script
from tests.shim.preload.container import Container
from tests.shim.preload.packets import Kind
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.shim.same import REFUSED

pytestmark = pytest.mark.shim


def test_a_program_that_starts_before_the_agent_waits_for_it(
    container: Container, extra: Extra, absent_agent: ScriptedAgent
) -> None:
    with container.running(extra.steps, *script("wait open take 4302 take 4300")) as program:
        program.says("waiting")
        program.goes_on()
        with absent_agent.serving():
            assert program.ends().lines == [REFUSED, "allocated 4300 MiB"]


def test_within_what_is_granted_a_program_goes_on_without_an_agent(
    container: Container, extra: Extra, absent_agent: ScriptedAgent
) -> None:
    """What it frees meanwhile is its credit, and no more than that is given without asking."""
    with container.running(extra.steps, *script("open take 3000 wait free take 3000 free take 2000 wait")) as program:
        with absent_agent.serving():
            program.says("waiting")
        program.goes_on()
        program.says("allocated 2000 MiB")
        program.says("waiting")
        assert absent_agent.used_bytes == 3000 * MIB


def test_beyond_it_waits_and_the_books_agree_afterwards(
    container: Container, extra: Extra, absent_agent: ScriptedAgent
) -> None:
    with container.running(extra.steps, *script("open take 3000 wait free take 4000 wait take 302 wait")) as program:
        with absent_agent.serving():
            program.says("waiting")
        program.goes_on()
        program.says("freed: 0")
        with absent_agent.serving():
            program.says("allocated 4000 MiB")
            assert absent_agent.held_by_pid == {program.pid: 4000 * MIB}
            program.says("waiting")
            program.goes_on()
            program.says(REFUSED)


def test_a_lost_answer_counts_once(container: Container, extra: Extra, agent: ScriptedAgent) -> None:
    """Asked again with the same figure: 4300 of 4301 are held, not twice as much."""
    agent.lost_answers = 1
    with container.running(extra.steps, *script("open take 4300 wait")) as program:
        program.says("allocated 4300 MiB")
        program.says("waiting")
        assert agent.used_bytes == 4300 * MIB
    assert [question.kind for question in agent.asked[:3]] == [Kind.HELLO, Kind.HOLD, Kind.HOLD]


def test_an_agent_of_another_version_is_waited_out_and_named(
    container: Container, extra: Extra, agent: ScriptedAgent
) -> None:
    agent.old_hellos = 2
    ended = container.run(extra.steps, *script("open take 4302 take 4300"))
    assert ended.lines == [REFUSED, "allocated 4300 MiB"]
    assert ended.err == "vrampack: the agent of this node speaks another version; waiting for one that does not\n"


def test_a_driver_that_nobody_knows_is_refused_loudly(container: Container, extra: Extra, agent: ScriptedAgent) -> None:
    agent.driver_version = "999.1"
    ended = container.run(extra.steps, *script("open take 1"))
    assert ended.code == 3
    assert ended.lines == []
    assert ended.err.startswith(
        "vrampack: this version of the NVIDIA driver is not known to vrampack: GPU memory is refused\n"
    )


def test_a_container_that_loses_its_limit_is_left_alone_from_then_on(
    container: Container, extra: Extra, agent: ScriptedAgent
) -> None:
    with container.running(extra.steps, *script("open take 4000 wait take 9000")) as program:
        program.says("waiting")
        agent.is_unlimited = True
        program.goes_on()
        program.says("allocated 9000 MiB")


def test_a_limit_that_changes_holds_from_the_next_allocation(
    container: Container, extra: Extra, agent: ScriptedAgent
) -> None:
    with container.running(extra.steps, *script("open take 4000 wait take 2000 wait take 2")) as program:
        program.says("waiting")
        agent.limit_bytes = 6000 * MIB
        program.goes_on()
        program.says("allocated 2000 MiB")
        program.says("waiting")
        agent.limit_bytes = 5000 * MIB
        program.goes_on()
        program.says(REFUSED)
    until(lambda: agent.used_bytes == 0)
