"""Class 0x40 takes memory of the card, in whole pages, and nothing else does."""

from __future__ import annotations

import pytest

from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.driver import parameters as nv
from tests.shim.driver.caller import DriverCaller
from tests.shim.driver.conftest import TWO_CARDS

KIB = 1024
SMALL_CARD = 1  # its place among the driver's cards

# Asked, attributes, what the caller is told, what the card gave
ROUNDED = {
    "a byte takes a big page": (1, 0, 64 * KIB, 64 * KIB),
    "below 2 MiB: big pages": (2 * MIB - 1, 0, 2 * MIB, 2 * MIB),
    "100 KiB: two of them": (100 * KIB, 0, 128 * KIB, 128 * KIB),
    "from 2 MiB on huge pages": (3 * MIB, 0, 4 * MIB, 4 * MIB),
    "unless big ones are asked for": (3 * MIB, nv.BIG_PAGES, 3 * MIB, 3 * MIB),
    "huge ones however small": (1, nv.HUGE_PAGES, 2 * MIB, 2 * MIB),
    "small ones are told, big ones given": (1, nv.SMALL_PAGES, 4 * KIB, 64 * KIB),
    "also beyond the first": (3 * MIB + 1, nv.SMALL_PAGES, 3 * MIB + 4 * KIB, 3 * MIB + 64 * KIB),
}


@pytest.mark.parametrize(("asked", "attr", "told", "given"), ROUNDED.values(), ids=ROUNDED)
def test_sizes_are_rounded_and_written_back(driver: FakeDriver, asked: int, attr: int, told: int, given: int) -> None:
    with DriverCaller(driver.control) as caller:
        params = nv.Memory(size=asked, attr=attr)
        assert caller.try_make(nv.VIDEO_MEMORY, params).status == nv.OK
        assert (params.size, params.limit) == (told, told - 1)
        assert driver.state().cards[0].used == given


GIB = 1024 * MIB
HINT, FORCE, FIXED = 0x80, 0x100, 0x10
PINNED = {
    # what is asked, what the caller is told, what the card gave: D29, D30
    "a fixed address takes all up to the alignment": (
        nv.Memory(size=1, flags=FIXED | HINT, alignment=4 * GIB), 64 * KIB, 4 * GIB,
    ),
    "from the address, rounded down": (
        nv.Memory(size=1, flags=FIXED | FORCE, alignment=GIB, offset=2 * GIB - 1), 64 * KIB, GIB,
    ),
    "without an alignment it takes the page": (nv.Memory(size=1, flags=FIXED, alignment=4 * GIB), 64 * KIB, 64 * KIB),
    "an alignment alone takes nothing more": (nv.Memory(size=1, flags=FORCE, alignment=4 * GIB), 64 * KIB, 64 * KIB),
    "pages of 512 MiB": (nv.Memory(size=1, attr=nv.HUGE_PAGES, attr2=2 << 20), 512 * MIB, 512 * MIB),
    "lines of compression": (nv.Memory(size=1, attr=1 << 13), 64 * KIB, 256 * KIB),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "told", "given"), PINNED.values(), ids=PINNED)
def test_the_pinned_size_exceeds_the_reported_size(driver: FakeDriver, asked: nv.Memory, told: int, given: int) -> None:
    with DriverCaller(driver.control) as caller:
        params = nv.Memory.from_buffer_copy(asked)
        assert caller.try_make(nv.VIDEO_MEMORY, params).status == nv.OK
        assert params.size == told
        assert driver.state().cards[0].used == given


NO_SUCH_PAGES = {
    "an alignment that does not divide": nv.Memory(size=1, flags=FORCE, alignment=3 * MIB - 1),
    "pages of 256 GiB": nv.Memory(size=1, attr=nv.HUGE_PAGES, attr2=3 << 20),
}


@pytest.mark.parametrize("asked", NO_SUCH_PAGES.values(), ids=NO_SUCH_PAGES)
def test_unsupported_allocations_are_refused(driver: FakeDriver, asked: nv.Memory) -> None:
    with DriverCaller(driver.control) as caller:
        assert caller.try_make(nv.VIDEO_MEMORY, nv.Memory.from_buffer_copy(asked)).status == nv.BAD_ARGUMENT
        assert driver.state().cards[0].used == 0


def test_a_full_card_refuses_an_allocation(driver: FakeDriver) -> None:
    with DriverCaller(driver.control, card=SMALL_CARD) as caller:
        caller.allocate_memory(700 * MIB)
        # 1024 - 256 of the driver's own - 700 = 68
        refused = caller.try_make(nv.VIDEO_MEMORY, nv.Memory(size=70 * MIB))
        assert refused.status == nv.NO_MEMORY
        caller.allocate_memory(68 * MIB)
        assert driver.state().card(TWO_CARDS[SMALL_CARD].uuid).used == 768 * MIB
        assert driver.state().refused == 1


def test_the_driver_refuses_on_request(driver: FakeDriver) -> None:
    """So that a test sees what happens when the driver refuses what a limit allowed."""
    with DriverCaller(driver.control) as caller:
        driver.refuse(status=0x1A, times=2)
        tries = [caller.try_make(nv.VIDEO_MEMORY, nv.Memory(size=MIB)).status for _ in range(3)]
        assert tries == [0x1A, 0x1A, nv.OK]
        assert driver.state().cards[0].used == MIB


WRONG = {
    "in system memory": nv.Memory(size=MIB, attr=nv.LOCATION_PCI),
    "anywhere": nv.Memory(size=MIB, attr=nv.LOCATION_ANY),
    "virtual": nv.Memory(size=MIB, flags=nv.FLAG_VIRTUAL),
    "empty": nv.Memory(size=0),
}


@pytest.mark.parametrize("params", WRONG.values(), ids=WRONG)
def test_a_video_memory_class_must_ask_for_video_memory(driver: FakeDriver, params: nv.Memory) -> None:
    with DriverCaller(driver.control) as caller:
        assert caller.try_make(nv.VIDEO_MEMORY, params).status == nv.BAD_ARGUMENT
        assert driver.state().objects == 3  # client, device, subdevice


def test_a_size_that_wraps_is_refused(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        assert caller.try_make(nv.VIDEO_MEMORY, nv.Memory(size=2**64 - 1)).status == nv.NO_MEMORY
        assert driver.state().cards[0].used == 0


ELSEWHERE = {
    "system memory": (nv.SYSTEM_MEMORY, nv.Memory(size=5000, attr=nv.LOCATION_PCI)),
    "an address range": (nv.VIRTUAL_MEMORY, nv.Memory(size=5000, flags=nv.FLAG_VIRTUAL)),
}


@pytest.mark.parametrize(("class_number", "params"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_host_memory_is_not_counted(driver: FakeDriver, class_number: int, params: nv.Memory) -> None:
    with DriverCaller(driver.control) as caller:
        caller.make(class_number, params)
        assert params.size == 8 * KIB
        assert driver.state().cards[0].used == 0


def test_each_card_counts_its_own_memory(driver: FakeDriver) -> None:
    with DriverCaller(driver.control, card=0) as first, DriverCaller(driver.control, card=1) as second:
        first.allocate_memory(4 * MIB)
        second.allocate_memory(6 * MIB)
        assert [card.used for card in driver.state().cards] == [4 * MIB, 6 * MIB]


def test_a_requested_handle_is_kept_and_must_be_unique(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        made = caller.try_make(nv.VIDEO_MEMORY, nv.Memory(size=MIB), handle=0x1234)
        assert (made.status, made.new) == (nv.OK, 0x1234)
        assert caller.try_make(nv.VIDEO_MEMORY, nv.Memory(size=MIB), handle=0x1234).status == nv.DUPLICATE
        assert driver.state().cards[0].used == MIB


def test_many_objects_are_found_again(driver: FakeDriver) -> None:
    """The table grows: 3000 pieces of 64 KiB, and each handle still refers to its own."""
    with DriverCaller(driver.control) as caller:
        handles = [caller.allocate_memory(1) for _ in range(3000)]
        assert len(set(handles)) == 3000
        assert driver.state().cards[0].used == 3000 * 64 * KIB
        assert all(caller.free_object(handle) == nv.OK for handle in handles)
        assert driver.state().cards[0].used == 0


def test_freeing_twice_succeeds_and_counts_once(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        first, _ = caller.allocate_memory(1), caller.allocate_memory(1)
        assert [caller.free_object(first), caller.free_object(first)] == [nv.OK, nv.OK]
        assert driver.state().cards[0].used == 64 * KIB


def test_the_peak_does_not_fall_after_a_free(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        caller.free_object(caller.allocate_memory(8 * MIB))
        caller.allocate_memory(2 * MIB)
        card = driver.state().cards[0]
        assert (card.used, card.peak) == (2 * MIB, 8 * MIB)
