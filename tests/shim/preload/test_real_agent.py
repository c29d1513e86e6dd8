"""Library and agent, both as they ship: the limit, and agents that are killed, replaced and away while programs allocate."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import pytest

from tests.fakes.driver.build import FakeDriverPrograms
from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.preload.building import PreloadTestPrograms, build_script
from tests.shim.preload.conftest import LIMIT_MIB
from tests.shim.preload.container import PreloadedContainer
from tests.shim.preload.real_agent import RealAgent
from tests.support.limit_cases import REFUSED
from tests.support.polling import wait_until
from vrampack.agent.limits.preload.files import install_files

SESSIONS = os.environ.get("VRAMPACK_PRELOAD_SESSIONS", "5000")


@pytest.fixture
def agent(library: Path, tmp_path: Path) -> RealAgent:
    made = RealAgent(tmp_path / "node", library)
    made.folder.mkdir()
    return made


@pytest.fixture
def container(agent: RealAgent, driver: FakeDriver) -> PreloadedContainer:
    """Some programs start while no agent is there; the library was put into the folder by one before."""
    install_files(agent.library, agent.site)
    return PreloadedContainer(agent.site, driver.folder)


def held_mib(agent: RealAgent) -> dict[int, int]:
    return {each.pid: each.held_bytes // MIB for each in agent.books()}


def test_the_program_is_held_to_the_agent_s_limit(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: RealAgent
) -> None:
    with agent.serving():
        ended = container.run(programs.app, "3193", "--then", "1109", "--then", "1108", "--then", "1")
    assert ended.lines == ["allocated 3193 MiB", REFUSED, "allocated 1108 MiB", REFUSED]
    assert (ended.code, ended.err) == (0, "")
    assert held_mib(agent) == {}


def test_the_successor_of_a_killed_agent_counts_a_silent_program(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: RealAgent
) -> None:
    with container.running(programs.app, "--hold", "4000") as idle:
        with agent.serving():
            idle.wait_for_line("holding")
        with agent.serving():
            assert container.run(programs.app, "302").lines == [REFUSED]  # 4301 - 4000 = 301, in pieces of 2
            assert container.run(programs.app, "300").lines == ["allocated 300 MiB"]
        assert held_mib(agent) == {idle.pid: 4000}
    wait_until(lambda: held_mib(agent) == {})


def test_a_program_waits_for_an_absent_agent_and_accounts_agree(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: RealAgent
) -> None:
    with container.running(
        extra.steps, *build_script("open take 3000 wait free take 4000 wait take 302 wait")
    ) as program:
        with agent.serving():
            program.wait_for_line("waiting")
        program.resume()
        program.wait_for_line("freed: 0")
        with agent.serving():
            program.wait_for_line("allocated 4000 MiB")
        assert held_mib(agent) == {program.pid: 4000}
        with agent.serving():
            program.wait_for_line("waiting")
            program.resume()
            program.wait_for_line(REFUSED)


@pytest.mark.timeout(300)
def test_sessions_that_race_while_agents_are_killed_stay_within_the_limit(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: RealAgent, driver: FakeDriver
) -> None:
    """Agents live for a fifth of a second each, or as long as their start took; programs fork and are killed: nothing is given twice, nothing is left."""
    over, agents = threading.Event(), []

    def keep_one() -> None:
        while not over.is_set():
            begun = time.monotonic()
            with agent.serving() as process:
                agents.append(process.pid)
                over.wait(max(0.2, time.monotonic() - begun))

    keeping = threading.Thread(target=keep_one)
    keeping.start()
    try:
        ended = container.run(extra.stress, "6", SESSIONS, "1", timeout=280)
    finally:
        over.set()
        keeping.join()
    assert (ended.code, ended.err) == (0, "")
    figures = re.search(r"peak (\d+)\n", ended.out)
    assert figures
    assert LIMIT_MIB * 0.5 < int(figures[1]) <= LIMIT_MIB, ended.out
    assert len(agents) > 3
    wait_until(lambda: held_mib(agent) == {})
    wait_until(lambda: driver.state().cards[0].used == 0)
