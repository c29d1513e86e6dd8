"""100,000 invalid calls: the program does not crash, and is charged for what the driver gave it."""

from __future__ import annotations

import os

import pytest

from tests.fakes.driver.driver import FakeDriver
from tests.shim.preload.building import PreloadTestPrograms
from tests.shim.preload.container import PreloadedContainer
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.support.polling import wait_until

CALLS = int(os.environ.get("VRAMPACK_PRELOAD_CALLS", "25000"))
SEEDS = 4
STOPS = 10


@pytest.mark.timeout(100)
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_malformed_calls_neither_crash_nor_charge_wrongly(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent, driver: FakeDriver, seed: int
) -> None:
    """The driver counts by itself; the two accounts are compared whenever the program stops, holding something."""
    with container.running(extra.malformed, str(CALLS), str(seed)) as program:
        for _ in range(STOPS):
            program.wait_for_line("waiting")
            accounts_agree(agent, driver, program.pid)
            program.resume()
        ended = program.wait_for_end()
        assert (ended.code, ended.err) == (0, "")
    assert driver.returncode() is None


def accounts_agree(agent: ScriptedAgent, driver: FakeDriver, pid: int) -> None:
    """Of a program that has stopped. Its last release is sent and not answered, so it may still be on its way."""

    def list_driver_holdings() -> dict[int, int]:
        return driver.state().cards[0].by_process

    wait_until(
        lambda: agent.held_by_pid == list_driver_holdings(),
        what=lambda: f"held {agent.held_by_pid}, of the driver {list_driver_holdings()}",
    )
    assert agent.held_by_pid.get(pid, 0) > 0
