"""VID_HEAP_CONTROL is the other way in: four ways to allocate, one to free, one to ask."""

from __future__ import annotations

from ctypes import Structure, sizeof

import pytest

from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.driver import parameters as nv
from tests.shim.driver.caller import DriverCaller

SURFACE, FREE, REPORT, TILED = 1, 3, 5, 6
ALLOC_EGM = 1 << 24


def heap_call(caller: DriverCaller, function: int, data: Structure, *, parent: int | None = None) -> nv.HeapHead:
    """One call with head and data side by side; both are filled in."""

    class Whole(Structure):
        _fields_ = [("head", nv.HeapHead), ("data", type(data))]

    whole = Whole(
        head=nv.HeapHead(root=caller.client, parent=caller.device if parent is None else parent, function=function),
        data=data,
    )
    assert sizeof(whole) == 184
    caller.call_ok(nv.VID_HEAP, whole)
    for name, *_ in data._fields_:
        setattr(data, name, getattr(whole.data, name))
    head: nv.HeapHead = nv.HeapHead.from_buffer_copy(whole.head)
    return head


WAYS = {
    "ALLOC_SIZE": (2, nv.HeapSize(size=3 * MIB)),
    "ALLOC_SIZE_RANGE": (14, nv.HeapRange(size=3 * MIB)),
    "ALLOC_TILED_PITCH_HEIGHT": (TILED, nv.HeapPitch(height=1536, pitch=2048)),
}


@pytest.mark.parametrize(("function", "data"), WAYS.values(), ids=WAYS)
def test_each_allocating_function_takes_memory_of_the_card(
    driver: FakeDriver, function: int, data: nv.HeapSize | nv.HeapRange | nv.HeapPitch
) -> None:
    with DriverCaller(driver.control) as caller:
        assert heap_call(caller, function, data).status == nv.OK
        assert (data.size, data.limit) == (4 * MIB, 4 * MIB - 1)
        assert driver.state().cards[0].used == 4 * MIB
        assert heap_call(caller, FREE, nv.HeapFree(memory=data.memory, flags=1)).status == nv.OK
        assert driver.state().cards[0].used == 0


SURFACES = {
    # 1920 * 4 = 7680 bytes a line, 1080 of them are 7.9 MiB
    "of pixels": (nv.HeapSurface(depth=32, width=1920, height=1080), 8 * MIB),
    # a line of 1 byte takes 32, 65536 of them are 2 MiB
    "of narrow lines": (nv.HeapSurface(depth=8, width=1, height=65536), 2 * MIB),
    # 16385 lines of 256 KiB are 4 GiB and one line: the driver counts in 32 bits
    "that wraps": (nv.HeapSurface(depth=32, width=65536, height=16385), 262144),
    # what stands in `size` is not looked at
    "with a size": (nv.HeapSurface(depth=32, width=16384, height=32, size=1), 2 * MIB),
}


@pytest.mark.parametrize("driver", ["515.43.04", "520.61.05", "525.147.05"], indirect=True)
def test_a_surface_takes_the_total_size_of_its_lines(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        for name, (data, size) in SURFACES.items():
            assert heap_call(caller, SURFACE, data).status == nv.OK, name
            assert (data.size, data.limit) == (size, size - 1), name
            assert driver.state().cards[0].used == size, name
            assert heap_call(caller, FREE, nv.HeapFree(memory=data.memory, flags=1)).status == nv.OK
        elsewhere = nv.HeapSurface(depth=32, width=16384, height=32, attr=nv.LOCATION_PCI)
        assert heap_call(caller, SURFACE, elsewhere).status == nv.OK
        assert driver.state().cards[0].used == 0


@pytest.mark.parametrize("driver", ["530.41.03", "580.95.05"], indirect=True)
def test_later_branches_refuse_surfaces(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        data = nv.HeapSurface(depth=32, width=16384, height=32)
        assert heap_call(caller, SURFACE, data).status == nv.BAD_ARGUMENT
        assert driver.state().cards[0].used == 0


def test_a_requested_handle_is_used_only_with_its_flag(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        picked = nv.HeapSize(size=1, memory=0x77)
        own = nv.HeapSize(size=1, memory=0x77, flags=nv.FLAG_HANDLE_PROVIDED)
        assert heap_call(caller, 2, picked).status == heap_call(caller, 2, own).status == nv.OK
        assert own.memory == 0x77
        assert picked.memory not in {0, 0x77}


def test_memory_without_an_owner_is_refused(driver: FakeDriver) -> None:
    """As 535 does it in both calls (D36)."""
    with DriverCaller(driver.control) as caller:
        assert heap_call(caller, 2, nv.HeapSize(size=1, owner=0)).status == nv.BAD_OWNER
        assert caller.try_make(nv.VIDEO_MEMORY, nv.Memory(size=1, owner=0)).status == nv.BAD_OWNER


def test_free_without_its_flag_is_refused(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        memory = caller.allocate_memory(1)
        assert heap_call(caller, FREE, nv.HeapFree(memory=memory)).status == nv.BAD_ARGUMENT
        assert caller.free_object(memory) == nv.OK


NOT_VIDEO = {
    "virtual": nv.HeapSize(size=MIB, flags=nv.FLAG_VIRTUAL),
    "system memory": nv.HeapSize(size=MIB, attr=nv.LOCATION_PCI),
}


@pytest.mark.parametrize("data", NOT_VIDEO.values(), ids=NOT_VIDEO)
def test_host_memory_is_not_counted(driver: FakeDriver, data: nv.HeapSize) -> None:
    with DriverCaller(driver.control) as caller:
        assert heap_call(caller, 2, data).status == nv.OK
        assert driver.state().cards[0].used == 0


def test_extended_memory_is_not_offered(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        assert heap_call(caller, 2, nv.HeapSize(size=MIB, attr2=ALLOC_EGM)).status == nv.NOT_SUPPORTED


def test_the_report_shows_the_free_memory(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        caller.allocate_memory(100 * MIB)
        data = nv.HeapReport()
        head = heap_call(caller, REPORT, data)
        # 16130 MiB, 256 of which are the driver's own
        assert (head.status, head.total, head.free) == (nv.OK, 15874 * MIB, 15774 * MIB)
        assert data.size == 15774 * MIB


def test_an_unknown_function_is_refused(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        assert heap_call(caller, 99, nv.HeapSize()).status == nv.BAD_ARGUMENT
