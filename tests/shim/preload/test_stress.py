"""10,000 sessions of processes that race, fork and are killed: never above the limit, and nothing left at the end."""

from __future__ import annotations

import os
import re

import pytest

from tests.fakes.driver.driver import FakeDriver
from tests.shim.preload.building import PreloadTestPrograms
from tests.shim.preload.conftest import LIMIT_MIB
from tests.shim.preload.container import PreloadedContainer
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.support.polling import wait_until

SESSIONS = int(os.environ.get("VRAMPACK_PRELOAD_SESSIONS", "10000"))
WORKERS = 6


@pytest.mark.timeout(600)
def test_the_limit_holds_under_load(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent, driver: FakeDriver
) -> None:
    ended = container.run(extra.stress, str(WORKERS), str(SESSIONS), "1", timeout=580)
    assert (ended.code, ended.err) == (0, "")
    figures = re.fullmatch(r"(\d+) given, (\d+) refused, (\d+) killed, (\d+) forked, peak (\d+)\n", ended.out)
    assert figures
    *happened, peak_mib = map(int, figures.groups())
    assert all(number > SESSIONS // 40 for number in happened), ended.out
    assert LIMIT_MIB * 0.8 < peak_mib <= LIMIT_MIB
    wait_until(lambda: agent.used_bytes == 0, what=lambda: f"what is still held: {agent.held_by_pid}")
    assert agent.peak_bytes <= agent.limit_bytes
    # The driver's own peak proves nothing here: a file system learns of a close after the program has continued.
    wait_until(lambda: driver.state().cards[0].used == 0, what="what the driver still has given out")
