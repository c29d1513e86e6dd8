"""Memory that is put into a control file, or a dma-buf, and whose handle is freed: it stays charged, or is refused (D33, D34).

VRAMPACK_KMOD_TURNS=4000 is the longest form of the race for a descriptor.
"""

from __future__ import annotations

import os

import pytest

from tests.fakes.driver.driver import MIB
from tests.machine.kernels import Kernel
from tests.shim.kmod.shares import scale_for_kernel
from tests.shim.kmod.world import KmodWorld
from tests.support.limit_cases import REFUSED
from tests.support.polling import wait_until

LIMIT = {0: 4301}
ROUNDS = int(os.environ.get("VRAMPACK_KMOD_TURNS", "400"))
SOCKET = "/lent"


@pytest.mark.parametrize("driver", ["new", "old"])
@pytest.mark.parametrize("way", ["keep", "many"])
def test_exported_memory_stays_charged_until_its_file_is_closed(empty: KmodWorld, driver: str, way: str) -> None:
    empty.load_driver(driver)
    empty.load_shim()
    place = empty.limited("a", LIMIT).inside(env={"RM_BRANCH": "535" if driver == "old" else "580"})
    with place.running("export", way, "1000") as program:
        program.wait_for_line("kept 4000 MiB, then 0x51")
        program.wait_for_line("kept")
        # 301 MiB are left: room for one more quarter of a file that is to have four.
        kept = 4000 if way == "keep" else 4250
        assert empty.driver().cards[0].used == empty.card("a").used == kept * MIB
        program.resume()
        program.wait_for_line("closed")
        assert empty.driver().cards[0].used == empty.card("a").used == (kept - 1000) * MIB
        program.kill()
        program.wait_for_end()
    wait_until(lambda: empty.card("a").used == empty.driver().cards[0].used == 0, what="that the files are closed")
    assert place.run("app", "4300").lines == ["allocated 4300 MiB"]


def test_a_channel_keeps_its_memory_charged(world: KmodWorld) -> None:
    """The memory of its USERD, whatever becomes of the handle (D35)."""
    place = world.limited("a", LIMIT)
    with place.running("export", "channel", "1000") as program:
        program.wait_for_line("kept 4000 MiB, then 0x51")
        program.wait_for_line("kept")
        assert world.driver().cards[0].used == world.card("a").used == 4000 * MIB
    wait_until(lambda: world.card("a").used == 0, what="that its file is closed")
    world.forget()


def test_imported_memory_is_charged_when_its_file_has_gone(world: KmodWorld) -> None:
    place = world.limited("a", LIMIT)
    with place.running("export", "import", "4000") as program:
        program.wait_for_line("imported")
        assert world.driver().cards[0].used == world.card("a").used == 4000 * MIB
        assert place.run("app", "302").lines == [REFUSED]
        program.resume()
        program.wait_for_line("freed")
        assert world.driver().cards[0].used == world.card("a").used == 0
    world.forget()


def test_a_descriptor_swapped_after_our_check_is_still_charged(world: KmodWorld, kernel: Kernel) -> None:
    """Of two files the first is closed: what went into the other is charged, whichever the descriptor led to when."""
    place = world.limited("a", LIMIT)
    rounds = scale_for_kernel(kernel, ROUNDS)
    with place.running("export", "race", str(rounds)) as program:
        program.wait_for_line(f"{rounds} of {rounds} exported", timeout=300)
        program.wait_for_line("kept")
        wait_until(lambda: world.driver().cards[0].used == world.card("a").used, what="that all is settled")
        assert 0 < world.card("a").used < rounds * 2 * MIB
        program.kill()
        program.wait_for_end()
    wait_until(lambda: world.card("a").used == 0, what="that the files are closed")
    world.forget()


def test_another_container_s_file_is_not_imported(world: KmodWorld) -> None:
    """No container would be charged for it; within the container it is one memory, charged once."""
    places = [world.limited(name, LIMIT) for name in ("a", "b")]
    for borrower, answer in ((places[1], "0x3b"), (places[0], "0x0")):
        with places[0].running("export", "lend", "1000", SOCKET) as lender:
            lender.wait_for_line("lends")
            assert borrower.run("export", "borrow", SOCKET).lines == [f"borrowed: {answer}"]
            lender.wait_for_line("lent")
            assert (world.card("a").used, world.card("b").used) == (1000 * MIB, 0)
    world.forget()


def test_a_dma_buf_is_refused(world: KmodWorld) -> None:
    """It is a descriptor of the kernel's own, which we do not see closed; without a limit the driver decides."""
    for place, answer in ((world.limited("a", LIMIT), "0x56"), (world.unlimited("b"), "0x0")):
        with place.running("export", "dmabuf", "64") as program:
            program.wait_for_line(f"dma-buf: {answer}")
            program.wait_for_line("kept")
            assert world.driver().cards[0].used == (0 if answer == "0x56" else 64 * MIB)
    world.forget()
