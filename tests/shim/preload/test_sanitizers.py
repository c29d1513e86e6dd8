"""The library's own sources in a program of many threads, under the thread, address and undefined behaviour sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.driver.driver import FakeDriver
from tests.shim.preload.building import CALLS, SOURCES, compile_source
from tests.shim.preload.container import PreloadedContainer
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.support.polling import wait_until

SHIM = Path(__file__).parents[3] / "shim"
WRAPPED = "-Wl," + ",".join(f"--wrap={name}" for name in ("ioctl", "close", "mmap", "mmap64"))
GUARDS = {
    "thread": ("-fsanitize=thread",),
    "address and undefined behaviour": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
}
THREADS, ROUNDS = 5, 60


@pytest.mark.timeout(200)
@pytest.mark.parametrize("guards", GUARDS.values(), ids=GUARDS)
def test_sanitizers_report_nothing_for_threads_that_do_everything_at_once(
    container: PreloadedContainer, agent: ScriptedAgent, driver: FakeDriver, tmp_path: Path, guards: tuple[str, ...]
) -> None:
    sources = [SOURCES / "threads.c", *CALLS, *SHIM.glob("preload/*.c"), *SHIM.glob("core/*.c")]
    program = compile_source(tmp_path / "threads", sources, "-pthread", WRAPPED, *guards)
    ended = container.run(program, str(THREADS), str(ROUNDS), is_preloaded=False, timeout=150)
    assert (ended.code, ended.err) == (0, "")
    given, refused = (int(word) for word in ended.out.split() if word.isdigit())
    assert given > THREADS * ROUNDS
    assert refused > 0
    assert agent.peak_bytes <= agent.limit_bytes
    wait_until(lambda: agent.used_bytes == 0)
    wait_until(lambda: driver.state().cards[0].used == 0)
