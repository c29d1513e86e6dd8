"""What a card says about itself, and how its names fit together: minor, bus number, instance, uuid."""

from __future__ import annotations

from ctypes import addressof, c_uint32

from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.driver import parameters as nv
from tests.shim.driver.caller import DriverCaller
from tests.shim.driver.conftest import TWO_CARDS

BINARY = 2
KIB_IN_MIB = 1024


def test_figures_add_up(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        caller.allocate_memory(100 * MIB)
        total, ram, heap, usable, mappable, free, largest, reserved = (
            figure / KIB_IN_MIB
            for figure in caller.report(
                [nv.TOTAL_RAM, nv.RAM, nv.HEAP, nv.USABLE, nv.MAPPABLE, nv.HEAP_FREE, nv.LARGEST_FREE, nv.RESERVED]
            )
        )
        assert (total, ram) == (16130, 16130)
        assert (heap, usable, mappable) == (15874, 15874, 15874)
        assert free == largest == 15774
        assert total - free - reserved == 100


def test_the_old_report_has_the_same_figures(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        entries = (nv.FbEntry * 2)(nv.FbEntry(index=nv.TOTAL_RAM), nv.FbEntry(index=nv.HEAP_FREE))
        status = caller.control(nv.FB_INFO, nv.FbList(count=2, entries=addressof(entries)))
        assert status == nv.OK
        assert [entry.kib for entry in entries] == caller.report([nv.TOTAL_RAM, nv.HEAP_FREE])


def test_the_identifiers_of_a_card_agree(driver: FakeDriver) -> None:
    """From the minor by CARD_INFO to the bus number, by 0x205 to the instance, by a device of that to the uuid."""
    with DriverCaller(driver.control) as caller:
        entries = (nv.CardParameters * 32)()
        caller.file_call(nv.CARD_INFO, entries)
        by_minor = {entry.minor: entry.gpu_id for entry in entries if entry.valid}
        attached = (c_uint32 * 32)()
        assert caller.control_at(nv.ATTACHED_IDS, addressof(attached), 128, handle=caller.client) == nv.OK
        assert sorted(by_minor.values()) == [gpu_id for gpu_id in attached if gpu_id != 0xFFFFFFFF]
        for card in TWO_CARDS:
            info = nv.IdInfo(gpu_id=by_minor[card.minor])
            assert caller.control(nv.ID_INFO, info, handle=caller.client) == nv.OK
            with DriverCaller(driver.control, card=info.instance) as user:
                gid = nv.Gid()
                assert user.control(nv.GID_INFO, gid) == nv.OK
                assert bytes(gid.data[: gid.length - 1]).decode() == card.uuid


def test_the_uuid_is_reported_as_bytes_on_request(driver: FakeDriver) -> None:
    with DriverCaller(driver.control, card=1) as caller:
        gid = nv.Gid(flags=BINARY)
        assert caller.control(nv.GID_INFO, gid) == nv.OK
        assert bytes(gid.data[: gid.length]).hex() == TWO_CARDS[1].uuid.removeprefix("GPU-").replace("-", "")


def test_a_control_with_command_zero_succeeds_without_effect(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        for command in (0, 0x20800000, 0x00800000):
            assert caller.control(command, None) == nv.OK
            assert caller.control(command, None, handle=99) == nv.OK


def refused(caller: DriverCaller) -> dict[str, tuple[int, int]]:
    """Malformed requests: the status that comes, and the status that should."""
    too_many = nv.FbListV2(count=129)
    unknown = nv.FbListV2(count=1)
    unknown.entries[0].index = 0x4000
    return {
        "a size that is not the control's": (caller.control(nv.FB_INFO_V2, nv.FbListV2(), size=444), nv.BAD_ARGUMENT),
        "a size without a pointer": (caller.control(nv.FB_INFO_V2, None, size=1028), nv.BAD_ARGUMENT),
        "a pointer without a size": (caller.control(nv.ID_INFO, nv.IdInfo(), size=0), nv.BAD_ARGUMENT),
        "more entries than there can be": (caller.control(nv.FB_INFO_V2, too_many), nv.BAD_ARGUMENT),
        "an index that is none": (caller.control(nv.FB_INFO_V2, unknown), nv.BAD_ARGUMENT),
        "an unknown control": (caller.control(0x20809999, None), nv.NOT_SUPPORTED),
        "of the wrong object": (caller.control(nv.FB_INFO_V2, nv.FbListV2(), handle=caller.device), nv.NOT_SUPPORTED),
        "of no object": (caller.control(nv.FB_INFO_V2, nv.FbListV2(), handle=99), nv.NO_SUCH_OBJECT),
        "an old list nowhere": (caller.control(nv.FB_INFO, nv.FbList(count=2, entries=8)), nv.BAD_ADDRESS),
        "parameters nowhere": (caller.control_at(nv.FB_INFO_V2, 4096, 1028), nv.BAD_ADDRESS),
    }


def test_invalid_controls_are_refused(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as caller:
        answers = refused(caller)
        assert {case: came for case, (came, _) in answers.items()} == {case: due for case, (_, due) in answers.items()}
