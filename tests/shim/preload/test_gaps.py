"""What the library cannot catch, each shown: this is why the limit is called cooperative (docs/preload.md)."""

from __future__ import annotations

from tests.fakes.driver.build import FakeDriverPrograms
from tests.shim.preload.building import PreloadTestPrograms
from tests.shim.preload.container import PreloadedContainer
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.support.limit_cases import REFUSED

TOO_MUCH = "6000"
"""MiB, of 4301."""


def test_a_library_loaded_later_is_limited(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    """The control case of this file: libcuda is loaded this way."""
    assert _around(container, extra, "plain") == ["refused"]


def test_a_library_loaded_with_deepbind_is_not_limited(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    assert _around(container, extra, "deepbind") == ["taken"]


def test_an_ioctl_taken_from_libc_is_not_limited(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    assert _around(container, extra, "dlsym") == ["taken"]


def test_a_raw_system_call_is_not_limited(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent
) -> None:
    assert container.run(programs.app, "--raw", TOO_MUCH).lines == [f"allocated {TOO_MUCH} MiB"]


def test_a_static_program_is_not_limited(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent
) -> None:
    assert container.run(programs.static_app, TOO_MUCH).lines == [f"allocated {TOO_MUCH} MiB"]
    assert agent.asked == []


def test_a_file_opened_by_io_uring_is_limited(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent
) -> None:
    """Opens are not watched: the first call on a file shows what it is."""
    for way, thread in (("now", "ring"), ("worker", "iou-wrk-"), ("poller", "iou-sqp-")):
        ended = container.run(programs.ring, way, TOO_MUCH, "4300")
        assert ended.lines == [f"opened by {thread}", REFUSED, "allocated 4300 MiB"]


def test_a_file_closed_by_io_uring_stays_counted(
    container: PreloadedContainer, programs: FakeDriverPrograms, agent: ScriptedAgent
) -> None:
    """Counted too long, never too short: the driver has the first 4000 MiB back, for the agent 301 are left."""
    ended = container.run(programs.ring, "now", "4000", "close", "302", "300")
    opened = "opened by ring"
    assert ended.lines == [opened, "allocated 4000 MiB", opened, REFUSED, "allocated 300 MiB"]
    assert container.run(programs.app, "4300").lines == ["allocated 4300 MiB"]


def _around(container: PreloadedContainer, extra: PreloadTestPrograms, way: str) -> list[str]:
    ended = container.run(extra.around, way, TOO_MUCH, str(extra.around_library))
    assert ended.code == 0, ended.err
    return ended.lines
