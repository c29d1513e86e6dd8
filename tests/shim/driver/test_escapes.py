"""What the driver refuses before it looks at what is asked: sizes, pointers, files, classes, parents."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from ctypes import addressof, c_int32, c_uint8, sizeof

import pytest

from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.driver import parameters as nv
from tests.shim.driver.caller import DriverCaller, call_ioctl, ioctl_number

NOWHERE = 4096  # never mapped
SIZES = {
    "RM_ALLOC": (nv.ALLOC, (32, 48)),
    "RM_FREE": (nv.FREE, (16,)),
    "RM_CONTROL": (nv.CONTROL, (32,)),
    "RM_DUP_OBJECT": (nv.DUP, (28,)),
    "RM_SHARE": (nv.SHARE, (24,)),
    "RM_VID_HEAP_CONTROL": (nv.VID_HEAP, (184,)),
    "IOCTL_XFER_CMD": (nv.XFER, (16,)),
}


@pytest.mark.parametrize(("escape", "right"), SIZES.values(), ids=SIZES)
def test_only_whole_structures_are_taken(driver: FakeDriver, escape: int, right: tuple[int, ...]) -> None:
    """A whole structure of zeros comes back, with a status or not; any other size is EINVAL."""
    with DriverCaller(driver.control) as caller:
        room = (c_uint8 * 256)()
        taken = {
            size
            for size in range(257)
            if call_ioctl(caller.file, ioctl_number(escape, size), addressof(room)) != errno.EINVAL
        }
        assert taken == (set() if escape == nv.XFER else set(right))
        assert escape != nv.XFER or xfer_sizes(caller) == {16}


def xfer_sizes(caller: DriverCaller) -> set[int]:
    """Sizes that are read as a wrapper: the card list in it is at an invalid address, hence EFAULT."""
    wrapper = nv.Xfer(command=nv.CARD_INFO, size=72 * 32, pointer=NOWHERE)
    room = (c_uint8 * 256).from_buffer_copy(bytes(wrapper).ljust(256, b"\0"))
    return {
        size
        for size in range(257)
        if call_ioctl(caller.file, ioctl_number(nv.XFER, size), addressof(room)) == errno.EFAULT
    }


def test_parameters_at_an_invalid_address_are_efault(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        for escape, (size, *_) in SIZES.values():
            assert call_ioctl(caller.file, ioctl_number(escape, size), NOWHERE) == errno.EFAULT


def test_a_card_list_that_is_too_short_is_refused(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        room = (nv.CardParameters * 2)()
        assert call_ioctl(caller.file, ioctl_number(nv.CARD_INFO, 72), addressof(room)) == errno.EINVAL
        assert call_ioctl(caller.file, ioctl_number(nv.CARD_INFO, 144), addressof(room)) == 0


def test_wrapped_calls_have_the_same_effect(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        params = nv.Memory(size=3 * MIB)
        body = nv.Alloc(
            root=caller.client, parent=caller.device, class_number=nv.VIDEO_MEMORY, params=addressof(params)
        )
        caller.call_ok(nv.XFER, nv.Xfer(command=nv.ALLOC, size=sizeof(body), pointer=addressof(body)))
        assert body.status == nv.OK
        assert driver.state().cards[0].used == 4 * MIB


def test_a_wrapped_call_is_checked_too(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        body = nv.Free(root=caller.client, old=caller.device)
        wrong_size = nv.Xfer(command=nv.FREE, size=12, pointer=addressof(body))
        huge = nv.Xfer(command=nv.FREE, size=1 << 31, pointer=addressof(body))
        nested = nv.Xfer(command=nv.XFER, size=16, pointer=addressof(body))
        assert [caller.call(nv.XFER, wrapper) for wrapper in (wrong_size, huge, nested)] == [errno.EINVAL] * 3
        assert driver.state().objects == 3


def test_memory_parameters_at_an_invalid_address_are_refused(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        for address, status in ((0, nv.BAD_ARGUMENT), (NOWHERE, nv.BAD_ADDRESS)):
            body = nv.Alloc(root=caller.client, parent=caller.device, class_number=nv.VIDEO_MEMORY, params=address)
            assert caller.call_ok(nv.ALLOC, body).status == status
        assert driver.state().cards[0].used == 0


def test_a_client_has_three_class_numbers(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        made = [caller.try_make(class_number, root=0, parent=0) for class_number in (0, 1, nv.CLIENT)]
        assert [body.status for body in made] == [nv.OK] * 3
        assert {body.class_number for body in made} == {nv.CLIENT}
        assert len({body.new for body in made}) == 3
        assert driver.state().clients == 4


CLASSES = {
    "unknown": (0x1234, nv.BAD_CLASS),
    "lists of pages, for an administrator": (0x82, nv.NOT_SUPPORTED),
    "a window on the whole card, likewise": (0xC2, nv.OK),
    "extended memory": (0x42, nv.NOT_SUPPORTED),
    "hardware resources": (0xB1, nv.NOT_SUPPORTED),
    "figures of the whole card, which belong to a subdevice": (0xDE, nv.BAD_PARENT),
    "an address space": (0x90F1, nv.OK),
    "a channel group": (0xA06C, nv.OK),
}


@pytest.mark.parametrize(("class_number", "status"), CLASSES.values(), ids=CLASSES)
def test_other_classes_return_their_own_status(driver: FakeDriver, class_number: int, status: int) -> None:
    with DriverCaller(driver.control) as caller:
        assert caller.try_make(class_number).status == status
        assert driver.state().cards[0].used == 0


def test_a_process_without_capabilities_gets_no_window(driver: FakeDriver) -> None:
    """The same call by a process without capabilities."""
    script = (
        "import sys, pathlib; from tests.shim.driver.caller import DriverCaller\n"
        "with DriverCaller(pathlib.Path(sys.argv[1])) as caller:\n"
        "    print([hex(caller.try_make(number).status) for number in (0xC2, 0x82, 0x40)])\n"
    )
    plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    command = [*plain, sys.executable, "-c", script, str(driver.control)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout == "['0x1b', '0x1b', '0x1f']\n", done.stderr


def test_an_object_with_a_wrong_parent_is_refused(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        memory = nv.Memory(size=MIB)
        assert caller.try_make(nv.VIDEO_MEMORY, memory, parent=caller.client).status == nv.BAD_PARENT
        assert caller.try_make(nv.VIDEO_MEMORY, memory, parent=99).status == nv.NO_SUCH_OBJECT
        assert caller.try_make(nv.VIDEO_MEMORY, memory, root=99).status == nv.BAD_CLIENT
        assert caller.try_make(nv.SUBDEVICE, parent=caller.client).status == nv.BAD_PARENT
        assert caller.try_make(nv.DEVICE, nv.Device(device_id=2), parent=caller.client).status == nv.BAD_DEVICE
        assert caller.try_make(nv.VIDEO_MEMORY, memory, parent=caller.subdevice).status == nv.OK
        system = nv.Memory(size=MIB, attr=nv.LOCATION_PCI)
        assert caller.try_make(nv.SYSTEM_MEMORY, system, parent=caller.subdevice).status == nv.BAD_PARENT


def test_a_cards_file_accepts_only_its_own_calls(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        card = os.open(driver.card_file(driver.cards[0]), os.O_RDWR)
        body = nv.Free(root=caller.client, old=caller.device)
        assert call_ioctl(card, ioctl_number(nv.FREE, 16), addressof(body)) == errno.EINVAL
        host = nv.HostMemory(root=caller.client, parent=caller.device, class_number=nv.SYSTEM_MEMORY)
        assert caller.call(nv.ALLOC_MEMORY, host) == errno.EINVAL
        os.close(card)


def test_a_cards_file_is_registered_with_a_control_file(driver: FakeDriver) -> None:
    """Once, and with an nvidiactl of this driver; then it may use the objects of that file. Its class 0x40 takes no memory."""
    with DriverCaller(driver.control) as caller:
        card = os.open(driver.card_file(driver.cards[0]), os.O_RDWR)
        register = ioctl_number(nv.REGISTER_FD, 4)
        host = nv.HostMemory(root=caller.client, parent=caller.device, class_number=nv.VIDEO_MEMORY)
        command = ioctl_number(nv.ALLOC_MEMORY, sizeof(host))
        assert call_ioctl(card, command, addressof(host)) == 0
        assert host.status == nv.BAD_CLIENT
        files = (c_int32 * 4)(card, 999, caller.file, caller.file)
        tries = [call_ioctl(card, register, addressof(files) + 4 * place) for place in range(4)]
        assert tries == [errno.EINVAL, errno.EINVAL, 0, errno.EINVAL]
        assert call_ioctl(card, command, addressof(host)) == 0
        assert host.status == nv.OK
        assert driver.state().cards[0].used == 0
        os.close(card)
