"""Memory that is exported to a descriptor of the process stays counted with it, and what is imported with the new object (D33)."""

from __future__ import annotations

import pytest

from tests.fakes.driver.build import FakeDriverPrograms
from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.preload.building import PreloadTestPrograms
from tests.shim.preload.container import FOLDER, PreloadedContainer
from tests.shim.preload.scripted_agent import ScriptedAgent
from tests.support.limit_cases import REFUSED
from tests.support.polling import wait_until

SOCKET = str(FOLDER / "lent")


@pytest.mark.parametrize(("way", "kept"), [("keep", 4000), ("many", 4250)])
def test_exported_memory_stays_counted_until_its_file_is_closed(
    container: PreloadedContainer,
    programs: FakeDriverPrograms,
    extra: PreloadTestPrograms,
    agent: ScriptedAgent,
    driver: FakeDriver,
    *,
    way: str,
    kept: int,
) -> None:
    """Four pieces to a file leave one quarter more of 4301 MiB."""
    with container.running(extra.export, way, "1000") as program:
        program.wait_for_line("kept 4000 MiB, then 0x51")
        program.wait_for_line("kept")
        assert driver.state().cards[0].used == kept * MIB
        program.resume()
        program.wait_for_line("closed")
        wait_until(lambda: driver.state().cards[0].used == (kept - 1000) * MIB, what="that the driver has it back")
        left = 4301 - kept + 1000
        assert container.run(programs.app, f"{left + 1}").lines == [REFUSED]
        assert container.run(programs.app, f"{left - 1}").lines == [f"allocated {left - 1} MiB"]


def test_imported_memory_is_counted_when_its_file_has_gone(
    container: PreloadedContainer, programs: FakeDriverPrograms, extra: PreloadTestPrograms, agent: ScriptedAgent
) -> None:
    with container.running(extra.export, "import", "4000") as program:
        program.wait_for_line("imported")
        assert container.run(programs.app, "302").lines == [REFUSED]
        program.resume()
        program.wait_for_line("freed")
        assert container.run(programs.app, "4300").lines == ["allocated 4300 MiB"]


def test_memory_exported_by_another_process_is_charged_to_it(
    container: PreloadedContainer, extra: PreloadTestPrograms, agent: ScriptedAgent, driver: FakeDriver
) -> None:
    """It is allowed, and counted once while the exporter has the file."""
    with container.running(extra.export, "lend", "1000", SOCKET) as lender:
        lender.wait_for_line("lends")
        assert container.run(extra.export, "borrow", SOCKET).lines == ["borrowed: 0x0"]
        lender.wait_for_line("lent")
        assert agent.peak_bytes == driver.state().cards[0].used == 1000 * MIB
