"""Memory in a control file lives until that file is closed, whatever becomes of its handle, and others can import it (D33, D34)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import addressof, sizeof

from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.driver import parameters as nv
from tests.shim.driver.caller import DriverCaller, call_ioctl, ioctl_number
from tests.support.polling import wait_until


@contextmanager
def opened(driver: FakeDriver) -> Iterator[int]:
    file = os.open(driver.control, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def used(driver: FakeDriver) -> int:
    return driver.state().cards[0].used // MIB


def export_one(caller: DriverCaller, handle: int, file: int) -> int:
    return caller.control(nv.EXPORT_ONE, nv.ExportOne(type=1, object=handle, file=file), handle=caller.client)


def import_one(caller: DriverCaller, file: int, handle: int = 0) -> tuple[int, int]:
    params = nv.ImportOne(file=file, type=1, parent=caller.device, object=handle)
    return caller.control(nv.IMPORT_ONE, params, handle=caller.client), int(params.object)


def export_many(
    caller: DriverCaller, handles: list[int], file: int, *, index: int = 0, most: int = 4, device: int | None = None
) -> int:
    of_device = caller.device if device is None else device
    params = nv.ExportMany(file=file, device=of_device, most=most, count=len(handles), index=index)
    params.objects[: len(handles)] = handles
    return caller.control(nv.EXPORT_MANY, params, handle=caller.client)


def import_many(caller: DriverCaller, handles: list[int], file: int, *, index: int = 0) -> int:
    params = nv.ImportMany(file=file, parent=caller.device, count=len(handles), index=index)
    params.objects[: len(handles)] = handles
    return caller.control(nv.IMPORT_MANY, params, handle=caller.client)


def test_an_exported_object_lives_until_the_file_is_closed(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        with opened(driver) as file:
            memory = caller.allocate_memory(64 * MIB)
            assert export_one(caller, memory, file) == nv.OK
            assert export_one(caller, memory, file) == nv.IN_USE
            assert caller.free_object(memory) == nv.OK
            assert used(driver) == 64
        wait_until(lambda: used(driver) == 0, what="that the file is closed")
        assert export_one(caller, memory, file) == nv.BAD_HANDLE
        memory = caller.allocate_memory(64 * MIB)
        assert export_one(caller, memory, file) == nv.BAD_PARAMETER


def test_an_imported_object_outlives_the_file_it_was_imported_from(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as giver, DriverCaller(driver.control) as taker:
        with opened(driver) as file:
            assert import_one(taker, file)[0] == nv.BAD_PARAMETER
            memory = giver.allocate_memory(64 * MIB)
            assert export_one(giver, memory, file) == nv.OK
            assert giver.free_object(memory) == nv.OK
            assert import_one(taker, file, 0x77) == (nv.OK, 0x77)
            status, chosen = import_one(taker, file)
            assert status == nv.OK
            assert chosen
        assert taker.free_object(0x77) == nv.OK
        assert used(driver) == 64
        assert taker.free_object(chosen) == nv.OK
        assert used(driver) == 0


def test_many_objects_are_exported_and_imported_at_once(driver: FakeDriver) -> None:
    """By places in the file; an export to a used place replaces the old object, and nothing removes it."""
    with DriverCaller(driver.control) as caller:
        with opened(driver) as file:
            pieces = [caller.allocate_memory(2 * MIB) for _ in range(3)]
            assert export_many(caller, pieces, file, device=0) == nv.BAD_PARAMETER
            assert export_many(caller, [*pieces, 0, 0], file) == nv.OUT_OF_RANGE
            assert export_many(caller, pieces, file) == nv.OK
            assert [caller.free_object(piece) for piece in pieces] == [nv.OK] * 3
            assert used(driver) == 6
            other = caller.allocate_memory(8 * MIB)
            assert export_many(caller, [0, other], file, index=1) == nv.OK
            assert caller.free_object(other) == nv.OK
            assert used(driver) == 2 + 8
            assert import_many(caller, [0x51, 0x52], file, index=2) == nv.OK
            assert import_many(caller, [0x53, 0x51], file) == nv.OK
            assert import_many(caller, [0x54, 0x55, 0x51], file) == nv.DUPLICATE
            assert import_many(caller, [0x54] * 5, file) == nv.OUT_OF_RANGE
        assert used(driver) == 2 + 8
        assert caller.free_object(0x51) == nv.OK
        assert used(driver) == 2
        assert caller.free_object(0x53) == nv.OK
        assert used(driver) == 0


def test_channels_and_semaphore_surfaces_keep_their_memory(driver: FakeDriver) -> None:
    """D35."""
    with DriverCaller(driver.control) as caller:
        for class_number, params in ((0xC56F, nv.Device()), (0xDA, nv.Device())):
            memory = caller.allocate_memory(64 * MIB)
            params.device_id = memory
            params.rest[7] = memory
            parent = caller.device if class_number == 0xC56F else caller.subdevice
            keeper = caller.make(class_number, params, parent=parent)
            assert caller.free_object(memory) == nv.OK
            assert used(driver) == 64
            assert caller.free_object(keeper) == nv.OK
            assert used(driver) == 0


def test_a_dma_buf_keeps_its_memory(driver: FakeDriver) -> None:
    """By the card's file alone."""
    card = os.open(driver.card_file(driver.cards[0]), os.O_RDWR | os.O_CLOEXEC)
    with DriverCaller(driver.control) as caller:
        memory = caller.allocate_memory(64 * MIB)
        asked = nv.DmaBuf(file=-1, client=caller.client, total_objects=1, objects=1, handle=memory)
        number = ioctl_number(nv.DMABUF, sizeof(asked))
        assert call_ioctl(card, number, addressof(asked)) == 0
        assert asked.status == nv.OK
        assert caller.call(nv.DMABUF, asked) != 0
        assert caller.free_object(memory) == nv.OK
        assert used(driver) == 64
    os.close(card)
    wait_until(lambda: used(driver) == 0, what="that the card's file is closed")
