"""nvidia-uvm: it can be mapped, it keeps memory alive by references of its own, and it needs to be initialised."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from ctypes import addressof

import pytest

from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.driver import parameters as nv
from tests.shim.driver.caller import DriverCaller, call_ioctl

BASE = 0x7000_0000_0000


@pytest.fixture
def uvm(driver: FakeDriver) -> Iterator[int]:
    file = os.open(driver.uvm, os.O_RDWR)
    body = nv.UvmInitialize()
    assert (call_ioctl(file, nv.UVM_INITIALIZE, addressof(body)), body.status) == (0, nv.OK)
    yield file
    os.close(file)


def map_external(file: int, caller: DriverCaller, memory: int) -> int:
    body = nv.UvmMapExternal(base=BASE, length=MIB, client=caller.client, memory=memory)
    assert call_ioctl(file, nv.UVM_MAP_EXTERNAL, addressof(body)) == 0
    return int(body.status)


def test_managed_memory_is_a_mapping(uvm: int) -> None:
    """At a file offset that is an address, as CUDA maps it; written and read like any memory."""
    with mmap.mmap(uvm, 4 * MIB, offset=BASE) as memory:
        assert memory[:4] == b"\0\0\0\0"
        memory[MIB : MIB + 5] = b"hello"
        assert memory[MIB : MIB + 5] == b"hello"


def test_parameters_are_read_from_a_mapping_of_the_driver_itself(driver: FakeDriver, uvm: int) -> None:
    """The driver reads them from a page that only it can fill."""
    with mmap.mmap(uvm, MIB, offset=BASE + 64 * MIB) as memory, DriverCaller(driver.control) as caller:
        params = nv.Memory.from_buffer(memory, 4096)
        params.owner, params.size = nv.OWNER, MIB
        assert caller.make(nv.VIDEO_MEMORY, params)
        assert params.limit == MIB - 1
        untouched = nv.Memory.from_buffer(memory, 512 * 1024)
        untouched.owner = nv.OWNER
        assert caller.try_make(nv.VIDEO_MEMORY, untouched).status == nv.BAD_ARGUMENT
        del params, untouched


def test_uvm_refuses_mappings_before_it_is_initialised(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        file = os.open(driver.uvm, os.O_RDWR)
        assert map_external(file, caller, caller.allocate_memory(MIB)) == nv.ILLEGAL_ACTION
        os.close(file)


def test_memory_mapped_by_uvm_outlives_its_handle(driver: FakeDriver, uvm: int) -> None:
    """The known way around a limit that looks only at handles: it counts for no process, but for the card."""
    with DriverCaller(driver.control) as caller:
        memory = caller.allocate_memory(MIB)
        assert map_external(uvm, caller, memory) == nv.OK
        assert caller.free_object(memory) == nv.OK
    card = driver.state().cards[0]
    assert (card.used, card.by_process) == (MIB, {0: MIB})
    body = nv.UvmFree(base=BASE)
    assert (call_ioctl(uvm, nv.UVM_FREE, addressof(body)), body.status) == (0, nv.OK)
    assert driver.state().cards[0].used == 0


def test_closing_uvm_releases_its_mappings(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        file = os.open(driver.uvm, os.O_RDWR)
        start = nv.UvmInitialize()
        assert call_ioctl(file, nv.UVM_INITIALIZE, addressof(start)) == 0
        memory = caller.allocate_memory(MIB)
        assert map_external(file, caller, memory) == nv.OK
        caller.free_object(memory)
        assert driver.state().cards[0].used == MIB
        os.close(file)
        assert driver.state().cards[0].used == 0


def test_only_existing_memory_can_be_mapped(driver: FakeDriver, uvm: int) -> None:
    with DriverCaller(driver.control) as caller:
        assert map_external(uvm, caller, 99) == nv.NO_SUCH_OBJECT
        assert map_external(uvm, caller, caller.device) == nv.NO_SUCH_OBJECT


def test_unknown_numbers_and_invalid_pointers_are_refused(uvm: int) -> None:
    assert call_ioctl(uvm, 250, BASE) == errno.EINVAL
    assert call_ioctl(uvm, nv.UVM_MAP_EXTERNAL, 4096) == errno.EFAULT


@pytest.mark.parametrize("driver", ["590.48.01", "595.45.04"], indirect=True)
def test_the_uvm_free_structure_is_shorter_from_590_on(uvm: int) -> None:
    room = nv.UvmFree(base=BASE, status=7)
    assert call_ioctl(uvm, nv.UVM_FREE, addressof(room)) == 0
    assert (room.length & 0xFFFFFFFF, room.status) == (nv.BAD_ADDRESS, 7)  # the status lies where the length was
