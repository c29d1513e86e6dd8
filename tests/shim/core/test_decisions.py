"""What the core decides, call by call: each test is a script of calls and of the driver's answers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.shim.core.script import AT, ONLY_CARD, WRAPPER, CoreScript
from tests.shim.core.steps import (
    BAD_STATE,
    CARD,
    EFAULT,
    EINVAL,
    LIMIT,
    OTHER_CARD,
    OTHER_ROOT,
    ROOT,
    begin_script,
    hold_memory,
    run_script,
)
from tests.shim.core.wire import (
    ALLOC,
    BRANCHES,
    CLIENT,
    CONTROL,
    HEAP,
    MEMORY,
    MIB,
    NO_MEMORY,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    SUBDEVICE,
    XFER,
    CoreWire,
    encode_request,
)


def test_core_refuses_what_exceeds_the_limit_without_asking_the_driver(script: CoreScript, runner: Path) -> None:
    hold_memory(script, 4000 * MIB, 1)
    script.refused(0, script.wire.memory(ROOT, CARD, 2, 302 * MIB), NO_MEMORY)
    script.counted(0, ONLY_CARD, 4000 * MIB, 4000 * MIB, 1)
    script.refused(0, script.wire.memory(ROOT, CARD, 2, 302 * MIB), NO_MEMORY, wrapped=True)
    script.refused(0, script.wire.memory(ROOT, CARD, 2, 302 * MIB, short=True), NO_MEMORY)
    script.refused(0, script.wire.heap(ROOT, CARD, 2, 302 * MIB), NO_MEMORY)
    script.refused(0, script.wire.heap(ROOT, CARD, 2, 302 * MIB, ranged=True), NO_MEMORY)
    # 4301 - 4000 = 301, which is odd: 300 and one more in small pages fit exactly.
    hold_memory(script, 300 * MIB, 3)
    hold_memory(script, 1 * MIB, 4)
    script.refused(0, script.wire.memory(ROOT, CARD, 2, 1), NO_MEMORY)
    script.counted(0, ONLY_CARD, LIMIT, LIMIT, 6)
    run_script(script, runner)


def test_a_size_beyond_all_cards_does_not_overflow(script: CoreScript, runner: Path) -> None:
    for size in (1 << 63, (1 << 64) - 1, (1 << 64) - (2 * MIB)):
        script.refused(0, script.wire.memory(ROOT, CARD, 2, size), NO_MEMORY)
    run_script(script, runner)


ROUNDED = {
    # asked, taken before, written back, used afterwards
    "one byte is a page of 64 KiB": (1, 64 << 10, 64 << 10),
    "just below 2 MiB is in small pages": (2 * MIB - 1, 2 * MIB, 2 * MIB),
    "nothing at all is a page": (0, 64 << 10, 64 << 10),
    "from 2 MiB on in big ones": (2 * MIB + 1, 4 * MIB, 4 * MIB),
    "less is not believed, as the caller can write it too": (4 * MIB + 1, 4 * MIB + (64 << 10), 6 * MIB),
    "pages of 4 KiB, of which the card gives 16 at once": (1 * MIB + 1, 1 * MIB + 4096, 1 * MIB + (64 << 10)),
    "the driver took more": (3 * MIB, 32 * MIB, 32 * MIB),
    "less than asked is not the driver's writing": (3 * MIB, 64 << 10, 4 * MIB),
}


@pytest.mark.parametrize(("asked", "written", "used"), ROUNDED.values(), ids=ROUNDED)
def test_a_charge_settles_to_the_size_that_the_driver_wrote(
    script: CoreScript, runner: Path, asked: int, written: int, used: int
) -> None:
    script.forwarded(0, script.wire.memory(ROOT, CARD, 0, asked), handle=7, size=written)
    script.used(0, ONLY_CARD, used)
    script.forwarded(0, script.wire.heap(ROOT, CARD, 0, asked), handle=8, size=written)
    script.used(0, ONLY_CARD, 2 * used)
    script.forwarded(0, script.wire.heap(ROOT, CARD, 0, asked, ranged=True), handle=9, size=written)
    script.used(0, ONLY_CARD, 3 * used)
    script.forwarded(0, script.wire.free(ROOT, 8))
    script.used(0, ONLY_CARD, 2 * used)
    run_script(script, runner)


@pytest.mark.parametrize(("written", "used"), [(300 << 30, 300 << 30), ((1 << 64) - 1, 16 << 40)])
def test_a_charge_follows_any_growth_and_sums_do_not_wrap(
    script: CoreScript, runner: Path, written: int, used: int
) -> None:
    """The growth counts beyond the limit; a size that no card has is capped, so that freeing it leaves what others use."""
    hold_memory(script, 8 * MIB, 1)
    script.forwarded(0, script.wire.memory(ROOT, CARD, 0, 3 * MIB), handle=7, size=written)
    script.counted(0, ONLY_CARD, 8 * MIB + used, 8 * MIB + used, 0)
    script.refused(0, script.wire.memory(ROOT, CARD, 2, 1), NO_MEMORY)
    script.forwarded(0, script.wire.free(ROOT, 7))
    script.used(0, ONLY_CARD, 8 * MIB)
    run_script(script, runner)


def test_a_request_that_the_driver_refuses_is_not_charged(script: CoreScript, runner: Path) -> None:
    for call in (script.wire.memory(ROOT, CARD, 1, MIB), script.wire.heap(ROOT, CARD, 1, MIB)):
        script.forwarded(0, call, handle=1, status=BAD_STATE)
        script.forwarded(0, call, handle=1, result=-EINVAL)
    script.counted(0, ONLY_CARD, 0, 0, 0)
    run_script(script, runner)


def test_unreadable_parameters_are_refused_where_they_could_take_memory(script: CoreScript, runner: Path) -> None:
    long, gone = script.wire.long_size, 0x900000
    for number, size in ((ALLOC, long), (ALLOC, 32), (HEAP, 184), (0x27, 56), (0x54, 56)):
        for at in (0, gone, 0x110000 - 4, (1 << 64) - 8):
            script.failed(0, encode_request(number, size), at, EFAULT, f"{number:#x} at {at:#x}")
        for other in (0, 1, size - 1, size + 4, 4096):
            script.failed(0, encode_request(number, other), AT, EINVAL, f"{number:#x} of {other} bytes")
    for at in (0, gone, 0x110000 - 4, (1 << 64) - 8):
        script.failed(0, encode_request(0x34, 28), at, EFAULT, f"a duplicate at {at:#x}")
    script.raw(0, encode_request(0x34, 27), AT, -EINVAL)
    for number, size in ((0x29, 16), (CONTROL, 32), (200, 2304), (XFER, 16)):
        for at in (0, gone, 0x110000 - 4, (1 << 64) - 8):
            script.raw(0, encode_request(number, size), at, -EFAULT)
            script.raw(0, encode_request(number, size), at, 0)
        script.raw(0, encode_request(number, size - 1), AT, -EINVAL)
    for pointer in (0, gone, (1 << 64) - 72):
        call = script.wire.memory(ROOT, CARD, 1, MIB)
        script.writes(AT, call.packed(pointer))
        script.asks(f"B 0 0 {encode_request(ALLOC, call.size):#x} {AT:#x}", "A 0", "the size cannot be read")
        script.reads(AT + call.status, struct.pack("<I", NOT_SUPPORTED), "the status")
    run_script(script, runner)


def test_a_status_that_cannot_be_written_is_an_error(script: CoreScript, runner: Path) -> None:
    """The class can be read, the status behind the end of memory cannot be written."""
    call = script.wire.window(MEMORY)
    script.writes(0x110000 - 20, call.packed()[:20])
    script.failed(0, encode_request(0x27, 56), 0x110000 - 20, EFAULT, "no place for the status")
    run_script(script, runner)


def test_a_nested_wrapper_is_refused(script: CoreScript, runner: Path) -> None:
    script.writes(WRAPPER, struct.pack("<IIQ", XFER, 16, WRAPPER))
    script.raw(0, encode_request(XFER, 16), WRAPPER, -EINVAL)
    run_script(script, runner)


def test_freeing_a_parent_frees_its_subtree(script: CoreScript, runner: Path) -> None:
    wire = script.wire
    script.forwarded(0, wire.alloc(ROOT, CARD, 0x20, SUBDEVICE), handle=0x20)
    hold_memory(script, 8 * MIB, 1)
    hold_memory(script, 8 * MIB, 2, device=0x20)
    script.forwarded(0, wire.memory(ROOT, ROOT, 3, 8 * MIB), handle=3, size=8 * MIB)
    script.used(0, ONLY_CARD, 24 * MIB)
    script.forwarded(0, wire.free(ROOT, CARD), status=BAD_STATE)
    script.used(0, ONLY_CARD, 24 * MIB, "used after a free that failed")
    script.forwarded(0, wire.free(ROOT, CARD))
    script.used(0, ONLY_CARD, 8 * MIB, "used when the device has gone")
    script.kept(2, 1)
    script.forwarded(0, wire.free(ROOT, ROOT))
    script.used(0, ONLY_CARD, 0, "used when the client has gone")
    script.nothing_kept()
    run_script(script, runner)


def test_heap_calls_free_memory_too(script: CoreScript, runner: Path) -> None:
    hold_memory(script, 8 * MIB, 1)
    script.forwarded(0, script.wire.heap_function(ROOT, CARD, 3, 1), status=BAD_STATE)
    script.used(0, ONLY_CARD, 8 * MIB)
    script.forwarded(0, script.wire.heap_function(ROOT, CARD, 3, 1), wrapped=True)
    script.used(0, ONLY_CARD, 0)
    run_script(script, runner)


def test_a_charge_lasts_until_the_last_duplicate_is_freed(script: CoreScript, runner: Path) -> None:
    """A duplicate in another file and process outlives the file that was charged."""
    wire = script.wire
    begin_script(script, file=1, owner=1, client=OTHER_ROOT, device=OTHER_CARD)
    hold_memory(script, 8 * MIB, 1)
    script.forwarded(1, wire.dup(OTHER_ROOT, OTHER_CARD, 0, ROOT, 1), handle=5)
    script.forwarded(1, wire.dup(OTHER_ROOT, OTHER_CARD, 0, ROOT, 1), status=BAD_STATE)
    script.forwarded(0, wire.dup(ROOT, CARD, 2, OTHER_ROOT, 5), handle=2)
    script.used(0, ONLY_CARD, 8 * MIB, "used under three names")
    script.forwarded(0, wire.free(ROOT, 1))
    script.used(0, ONLY_CARD, 8 * MIB, "used under two")
    script.close(0)
    script.share(0, ONLY_CARD, 8 * MIB)
    script.forwarded(1, wire.free(OTHER_ROOT, 5))
    script.used(0, ONLY_CARD, 0, "used under none")
    run_script(script, runner, 1)


def test_duplicating_from_an_unknown_client_is_refused_if_all_clients_are_known(
    script: CoreScript, runner: Path
) -> None:
    """No owner here would be charged for it. Where other processes have clients of their own, the driver decides."""
    wire = script.wire
    hold_memory(script, 8 * MIB, 1)
    script.forwarded(0, wire.dup(ROOT, CARD, 2, 0xC1D00099, 1), handle=2)
    script.knows_all_clients()
    script.refused(0, wire.dup(ROOT, CARD, 3, 0xC1D00099, 1), NOT_PERMITTED)
    script.refused(0, wire.dup(ROOT, CARD, 3, 0xC1D00099, 1), NOT_PERMITTED, wrapped=True)
    script.forwarded(0, wire.dup(ROOT, CARD, 4, ROOT, 1), handle=4)
    script.forwarded(0, wire.dup(ROOT, CARD, 5, ROOT, 0x99), status=BAD_STATE, say="of a client that is known")
    script.used(0, ONLY_CARD, 8 * MIB)
    run_script(script, runner)


def test_a_call_that_may_have_happened_stays_charged(script: CoreScript, runner: Path) -> None:
    """After EFAULT the memory exists if only the reply could not be written. Closing the file settles it."""
    wire = script.wire
    script.forwarded(0, wire.memory(ROOT, CARD, 1, 8 * MIB), handle=1, result=-EFAULT)
    script.forwarded(0, wire.memory(ROOT, CARD, 0, 8 * MIB), handle=0)
    script.forwarded(0, wire.memory(ROOT, CARD, 1, 8 * MIB), handle=1, status=0x10002)
    script.used(0, ONLY_CARD, 24 * MIB, "used in doubt")
    hold_memory(script, 8 * MIB, 1)
    script.used(0, ONLY_CARD, 32 * MIB)
    script.forwarded(0, wire.dup(ROOT, CARD, 0, ROOT, 1), result=-EFAULT)
    hold_memory(script, 8 * MIB, 2)
    script.forwarded(0, wire.free(ROOT, 2), result=-EFAULT)
    script.used(0, ONLY_CARD, 40 * MIB, "used after a free in doubt")
    script.kept(8, 5)
    for call in (wire.alloc(0, 0, 0, CLIENT), wire.device(ROOT, 0x77, 0), wire.dup(ROOT, ROOT, 0, ROOT, CARD)):
        script.forwarded(0, call, handle=0x77, result=-EFAULT)
    script.kept(8, 5)
    script.forwarded(0, wire.free(ROOT, CARD))
    script.used(0, ONLY_CARD, 0)
    run_script(script, runner)


def test_forged_card_replies_of_one_owner_do_not_affect_another(wire: CoreWire, runner: Path) -> None:
    """The first container has forged the replies: its instance 0 would be minor 1. The second's instance 0 is not affected."""
    script = CoreScript(wire)
    script.limit(0, 0, 4 * MIB)
    script.limit(0, 1, 4 * MIB)
    for file, root in enumerate((ROOT, ROOT + 1)):
        script.open(file, 0, cards=file)
        script.forwarded(file, wire.alloc(0, 0, 0, CLIENT), handle=root)
        script.forwarded(file, wire.cards({0: 0x100, 1: 0x200}))
        script.forwarded(file, wire.card_id(root, 0x200 - 0x100 * file, 0))
        script.forwarded(file, wire.device(root, 0x10, 0, short=True), handle=0x10)
        hold_memory(script, (2 + 2 * file) * MIB, 1, file=file, client=root, device=0x10)
    script.used(0, 1, 2 * MIB)
    script.used(0, 0, 4 * MIB)
    script.close(0)
    script.close(1)
    script.check(runner)


def test_each_card_has_its_own_limit(wire: CoreWire, runner: Path) -> None:
    """Instances 0 and 1 are the minors 1 and 0; instance 2 is in no list."""
    script = CoreScript(wire)
    script.limit(0, 0, 8 * MIB)
    script.limit(0, 1, 4 * MIB)
    script.limit(0, ONLY_CARD, 2 * MIB)
    script.open(0, 0)
    script.forwarded(0, wire.alloc(0, 0, 0, CLIENT), handle=ROOT)
    script.forwarded(0, wire.cards({0: 0x100, 1: 0x200}))
    script.forwarded(0, wire.card_id(ROOT, 0x200, 0))
    script.forwarded(0, wire.card_id(ROOT, 0x100, 1, long=True))
    # What a caller makes of a later reply changes nothing.
    script.forwarded(0, wire.card_id(ROOT, 0x100, 0))
    script.forwarded(0, wire.cards({1: 0x100, 0: 0x200}))
    for instance in (0, 1, 2, 99):
        script.forwarded(0, wire.device(ROOT, 0x10 + instance, instance, short=True), handle=0x10 + instance)
    script.refused(0, wire.memory(ROOT, 0x10, 1, 6 * MIB), NO_MEMORY)
    hold_memory(script, 6 * MIB, 1, device=0x11)
    hold_memory(script, 4 * MIB, 2, device=0x10)
    hold_memory(script, 2 * MIB, 3, device=0x12)
    script.refused(0, wire.memory(ROOT, 0x10 + 99, 4, 1), NO_MEMORY)
    script.forwarded(0, wire.dup(ROOT, ROOT, 0x30, ROOT, 0x11), handle=0x30)
    hold_memory(script, 2 * MIB, 5, device=0x30)
    script.used(0, 0, 8 * MIB)
    script.used(0, 1, 4 * MIB)
    script.used(0, ONLY_CARD, 2 * MIB)
    script.close(0)
    for card in (0, 1, ONLY_CARD):
        script.used(0, card, 0)
    script.nothing_kept()
    script.check(runner)


def test_a_limit_changes_while_it_is_used(script: CoreScript, runner: Path) -> None:
    hold_memory(script, 8 * MIB, 1)
    hold_memory(script, 8 * MIB, 2)
    script.limit(0, ONLY_CARD, 12 * MIB)
    script.refused(0, script.wire.memory(ROOT, CARD, 3, 1), NO_MEMORY, say="below what is used nothing more is given")
    script.forwarded(0, script.wire.free(ROOT, 2))
    hold_memory(script, 4 * MIB, 2)
    script.refused(0, script.wire.memory(ROOT, CARD, 3, 1), NO_MEMORY)
    script.limit(0, ONLY_CARD, 14 * MIB)
    hold_memory(script, 2 * MIB, 3)
    script.counted(0, ONLY_CARD, 14 * MIB, 16 * MIB, 2)
    run_script(script, runner)


def test_processes_of_a_container_share_its_limit(script: CoreScript, runner: Path) -> None:
    begin_script(script, file=1, owner=1, client=OTHER_ROOT, device=OTHER_CARD)
    begin_script(script, file=2, owner=2, client=0xC1D00003, device=0x5C000003)
    hold_memory(script, 4000 * MIB, 1)
    hold_memory(script, 300 * MIB, 1, file=1, client=OTHER_ROOT, device=OTHER_CARD)
    script.refused(1, script.wire.memory(OTHER_ROOT, OTHER_CARD, 2, 2 * MIB), NO_MEMORY)
    hold_memory(script, 9000 * MIB, 1, file=2, client=0xC1D00003, device=0x5C000003)
    script.share(0, ONLY_CARD, 4000 * MIB)
    script.share(1, ONLY_CARD, 300 * MIB)
    script.close(0)
    script.used(0, ONLY_CARD, 300 * MIB)
    run_script(script, runner, 1, 2)


def test_80_gib_can_be_allocated_in_pieces_of_2_mib(runner: Path) -> None:
    """40,960 objects; every second one freed, then the rest with the client."""
    script = CoreScript(CoreWire(580))
    script.limit(0, ONLY_CARD, 80 << 30)
    begin_script(script, file=0, owner=0, client=ROOT, device=CARD)
    for handle in range(1, 40961):
        hold_memory(script, 2 * MIB, handle)
    script.refused(0, script.wire.memory(ROOT, CARD, 50000, 1), NO_MEMORY)
    for handle in range(1, 40961, 2):
        script.forwarded(0, script.wire.free(ROOT, handle))
    script.used(0, ONLY_CARD, 40 << 30)
    script.kept(20482, 20480)
    script.forwarded(0, script.wire.free(ROOT, ROOT))
    run_script(script, runner)


def test_core_refuses_new_objects_when_its_tables_cannot_grow(runner: Path) -> None:
    for grows in range(4):
        script = CoreScript(CoreWire(580))
        script.limit(0, ONLY_CARD, LIMIT)
        script.grows(grows)
        script.open(0, 0)
        if grows < 3:
            script.refused(0, script.wire.alloc(0, 0, 0, CLIENT), NO_MEMORY)
        else:
            script.forwarded(0, script.wire.alloc(0, 0, 0, CLIENT), handle=ROOT)
            for handle in range(1, 63):
                hold_memory(script, MIB, handle, device=ROOT)
            script.refused(0, script.wire.memory(ROOT, ROOT, 100, MIB), NO_MEMORY)
            script.refused(0, script.wire.dup(ROOT, ROOT, 100, ROOT, 1), NO_MEMORY)
            script.used(0, ONLY_CARD, 62 * MIB)
        script.grows(-1)
        run_script(script, runner)


def test_known_driver_versions_are_accepted_and_others_refused(runner: Path) -> None:
    for branch in BRANCHES:
        CoreScript(CoreWire(branch)).check(runner)
    for version in (
        "470.82.01",
        "510.47.03",
        "600.10",
        "610.43",
        "615.01",
        "580",
        "58",
        "",
        "5800.1",
        "x580.1",
        "580-1",
    ):
        script = CoreScript(CoreWire(580))
        script.asks(f"V {version}", "0", f"{version!r} is not known")
        script.check(runner)
