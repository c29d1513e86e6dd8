"""The limit as programs see it: what they are shown, what is refused, and what is given back."""

from __future__ import annotations

import signal

import pytest

from tests.fakes.driver.build import FakeDriverPrograms
from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.preload.building import PreloadTestPrograms
from tests.shim.preload.container import PreloadedContainer
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.support.limit_cases import MANAGED_REFUSED, REFUSED
from tests.support.polling import wait_until

QUERY = ("--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits")


def test_programs_see_the_limit_as_total_and_the_containers_use_as_used(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent
) -> None:
    """4301 of the card's 16130 MiB; the use is another process's, and nvidia-smi has none of its own."""
    with container.running(programs.app, "--total", "--free", "--hold", "3193") as app:
        app.wait_for_line("Total amount of global memory: 4301 MBytes (4509925376 bytes)")
        app.wait_for_line("free 1108 MiB of 4301 MiB")
        app.wait_for_line("holding")
        assert container.run(programs.smi, *QUERY).out == "4301, 3193, 1108\n"


def test_an_allocation_that_does_not_fit_is_refused_and_the_program_continues(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent, driver: FakeDriver
) -> None:
    """3193 + 1109 is 1 more than 4301, and 1108 is not."""
    ended = container.run(programs.app, "3193", "--then", "1109", "--then", "1108", "--then", "1")
    assert ended.lines == ["allocated 3193 MiB", REFUSED, "allocated 1108 MiB", REFUSED]
    assert (ended.code, ended.err) == (0, "")
    assert driver.state().cards[0].peak == 4301 * MIB
    assert agent.peak_bytes == 4301 * MIB


@pytest.mark.parametrize("form", ["--xfer", "--short", "--heap", "--pages=2m"])
def test_every_form_of_the_call_is_counted(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent, driver: FakeDriver, form: str
) -> None:
    ended = container.run(programs.app, form, "4000", "--then", "400", "--then", "300", "--total")
    total = "Total amount of global memory: 4301 MBytes (4509925376 bytes)"
    assert ended.lines == ["allocated 4000 MiB", REFUSED, "allocated 300 MiB", total]
    assert driver.state().cards[0].peak == 4300 * MIB


def test_processes_of_a_container_share_one_budget(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent
) -> None:
    with container.running(programs.app, "--hold", "4000") as app:
        app.wait_for_line("holding")
        assert container.run(programs.app, "400").lines == [REFUSED]
        assert container.run(programs.app, "300").lines == ["allocated 300 MiB"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_ended_process_frees_everything(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent, number: signal.Signals
) -> None:
    with container.running(programs.app, "--hold", "4300") as app:
        app.wait_for_line("holding")
        app.process.send_signal(number)
        app.process.wait()
        wait_until(lambda: agent.used_bytes == 0, what="the memory of the dead")
    assert container.run(programs.app, "4300").lines == ["allocated 4300 MiB"]


def test_managed_memory_is_refused(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent
) -> None:
    """It takes the card's memory without a call that could be counted."""
    assert container.run(programs.app, "--managed", "1").lines == [MANAGED_REFUSED]


def test_a_container_without_a_limit_is_left_alone(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent
) -> None:
    agent.is_unlimited = True
    ended = container.run(programs.app, "15000", "--total")
    assert ended.lines[0] == "allocated 15000 MiB"
    assert "16130 MBytes" in ended.lines[1]
    assert container.run(programs.app, "--managed", "1").lines == ["allocated 1 MiB managed"]


@pytest.mark.parametrize("way", ["groups", "bare"])
def test_the_channel_groups_of_a_process_are_bounded(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent, way: str
) -> None:
    """As many as the module gives a container with one card; the library knows of no other process's."""
    with container.running(extra.channels, way, "3000") as program:
        program.wait_for_line("64, then 0x4f")
        program.wait_for_line("made")
        program.resume()
        program.wait_for_line("freed")
        program.resume()
        program.wait_for_line("again: 0x0")
