"""The agent is upgraded, killed, slow or of another version: the limit holds, and programs wait rather than fail."""

from __future__ import annotations

from tests.fakes.driver.driver import MIB
from tests.shim.preload.building import PreloadTestPrograms, build_script
from tests.shim.preload.container import PreloadedContainer
from tests.shim.preload.packets import PacketKind
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.support.limit_cases import REFUSED
from tests.support.polling import wait_until


def test_a_program_that_starts_before_the_agent_waits_for_it(
    container: PreloadedContainer, extra: PreloadTestPrograms, absent_agent: ScriptedAgent
) -> None:
    with container.running(extra.steps, *build_script("wait open take 4302 take 4300")) as program:
        program.wait_for_line("waiting")
        program.resume()
        with absent_agent.serving():
            assert program.wait_for_end().lines == [REFUSED, "allocated 4300 MiB"]


def test_a_program_continues_without_an_agent_within_its_grant(
    container: PreloadedContainer, extra: PreloadTestPrograms, absent_agent: ScriptedAgent
) -> None:
    """What it frees meanwhile is its credit, and only that is granted without asking."""
    with container.running(
        extra.steps, *build_script("open take 3000 wait free take 3000 free take 2000 wait")
    ) as program:
        with absent_agent.serving():
            program.wait_for_line("waiting")
        program.resume()
        program.wait_for_line("allocated 2000 MiB")
        program.wait_for_line("waiting")
        assert absent_agent.used_bytes == 3000 * MIB


def test_a_program_beyond_its_grant_waits_for_the_agent_and_accounts_agree(
    container: PreloadedContainer, extra: PreloadTestPrograms, absent_agent: ScriptedAgent
) -> None:
    with container.running(
        extra.steps, *build_script("open take 3000 wait free take 4000 wait take 302 wait")
    ) as program:
        with absent_agent.serving():
            program.wait_for_line("waiting")
        program.resume()
        program.wait_for_line("freed: 0")
        with absent_agent.serving():
            program.wait_for_line("allocated 4000 MiB")
            assert absent_agent.held_by_pid == {program.pid: 4000 * MIB}
            program.wait_for_line("waiting")
            program.resume()
            program.wait_for_line(REFUSED)


def test_a_request_repeated_after_a_lost_answer_counts_once(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    """Asked again with the same figure: 4300 of 4301 are held, not twice as much."""
    agent.lost_answers = 1
    with container.running(extra.steps, *build_script("open take 4300 wait")) as program:
        program.wait_for_line("allocated 4300 MiB")
        program.wait_for_line("waiting")
        assert agent.used_bytes == 4300 * MIB
    assert [question.kind for question in agent.asked[:3]] == [PacketKind.HELLO, PacketKind.HOLD, PacketKind.HOLD]


def test_a_program_reports_an_agent_of_another_version_and_waits(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    agent.old_hellos = 2
    ended = container.run(extra.steps, *build_script("open take 4302 take 4300"))
    assert ended.lines == [REFUSED, "allocated 4300 MiB"]
    assert ended.err == "vrampack: the agent of this node speaks another version; waiting for one that does not\n"


def test_an_unknown_driver_is_refused_with_a_message(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    agent.driver_version = "999.1"
    ended = container.run(extra.steps, *build_script("open take 1"))
    assert ended.code == 3
    assert ended.lines == []
    assert ended.err.startswith(
        "vrampack: this version of the NVIDIA driver is not known to vrampack: GPU memory is refused\n"
    )


def test_a_container_that_loses_its_limit_is_left_alone_from_then_on(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    with container.running(extra.steps, *build_script("open take 4000 wait take 9000")) as program:
        program.wait_for_line("waiting")
        agent.is_unlimited = True
        program.resume()
        program.wait_for_line("allocated 9000 MiB")


def test_a_limit_that_changes_holds_from_the_next_allocation(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    with container.running(extra.steps, *build_script("open take 4000 wait take 2000 wait take 2")) as program:
        program.wait_for_line("waiting")
        agent.limit_bytes = 6000 * MIB
        program.resume()
        program.wait_for_line("allocated 2000 MiB")
        program.wait_for_line("waiting")
        agent.limit_bytes = 5000 * MIB
        program.resume()
        program.wait_for_line(REFUSED)
    wait_until(lambda: agent.used_bytes == 0)
