"""Calls that overlap: one frees while another allocates, and the driver gives out the same handle again."""

from __future__ import annotations

from pathlib import Path

from tests.shim.core.script import ONLY_CARD, CoreScript
from tests.shim.core.steps import (
    CARD,
    ROOT,
    hold_memory,
    run_script,
)
from tests.shim.core.wire import (
    MIB,
)


def test_a_reused_handle_replaces_the_old_entry(script: CoreScript, runner: Path) -> None:
    """An object below a device that was replaced may belong to either: it stays charged until the client goes."""
    wire = script.wire
    hold_memory(script, 8 * MIB, 1)
    hold_memory(script, 32 * MIB, 1)
    script.used(0, ONLY_CARD, 32 * MIB)
    script.forwarded(0, wire.device(ROOT, CARD, 0), handle=CARD)
    script.forwarded(0, wire.free(ROOT, CARD))
    script.used(0, ONLY_CARD, 32 * MIB, "used below the device of before")
    script.forwarded(0, wire.free(ROOT, ROOT))
    script.used(0, ONLY_CARD, 0)
    run_script(script, runner)


def test_two_replies_with_one_handle_are_both_charged(script: CoreScript, runner: Path) -> None:
    """One was freed in between by a call that found nothing yet. Which one is unknown; the end of the client settles it."""
    wire = script.wire
    small, big = wire.memory(ROOT, CARD, 1, 4 * MIB), wire.memory(ROOT, CARD, 1, 32 * MIB)
    script.before(0, small, slot=1)
    script.forwarded(0, wire.free(ROOT, 1))
    script.before(0, big)
    script.after(big, handle=1, size=32 * MIB)
    script.after(small, slot=1, handle=1, size=4 * MIB)
    script.used(0, ONLY_CARD, 36 * MIB)
    script.forwarded(0, wire.free(ROOT, 1))
    script.used(0, ONLY_CARD, 32 * MIB)
    script.forwarded(0, wire.free(ROOT, CARD))
    script.used(0, ONLY_CARD, 0)
    run_script(script, runner)


def test_a_handle_reused_during_its_free_is_charged(script: CoreScript, runner: Path) -> None:
    """One thread frees; the driver gives the handle to another, whose call ends first."""
    wire = script.wire
    hold_memory(script, 8 * MIB, 1)
    free, again = wire.free(ROOT, 1), wire.memory(ROOT, CARD, 0, 4 * MIB)
    script.before(0, free, slot=1)
    script.before(0, again)
    script.after(again, handle=1, size=4 * MIB)
    script.used(0, ONLY_CARD, 4 * MIB, "used once the handle is another's")
    script.after(free, slot=1)
    script.used(0, ONLY_CARD, 4 * MIB, "used when the free ends")
    run_script(script, runner)


def test_two_frees_of_one_handle_release_its_charge_once(script: CoreScript, runner: Path) -> None:
    wire = script.wire
    for first_status, second_status in ((0, 0x57), (0x57, 0)):
        hold_memory(script, 8 * MIB, 1)
        free = wire.free(ROOT, 1)
        script.before(0, free, slot=1)
        script.before(0, free, slot=2)
        script.after(free, slot=1, status=first_status)
        script.after(free, slot=2, status=second_status)
        script.used(0, ONLY_CARD, 0)
        hold_memory(script, 8 * MIB, 2)
        script.forwarded(0, wire.free(ROOT, 2))
    run_script(script, runner)


def test_memory_below_a_recreated_device_is_not_lost(script: CoreScript, runner: Path) -> None:
    """The device is freed and recreated with its handle; an allocation in the new one ends before the device's own call."""
    wire = script.wire
    free, device, memory = wire.free(ROOT, CARD), wire.device(ROOT, CARD, 0), wire.memory(ROOT, CARD, 3, 8 * MIB)
    script.before(0, free, slot=1)
    script.before(0, device, slot=2)
    script.before(0, memory)
    script.after(memory, handle=3, size=8 * MIB)
    script.after(device, slot=2, handle=CARD)
    script.after(free, slot=1)
    script.used(0, ONLY_CARD, 8 * MIB)
    script.forwarded(0, wire.free(ROOT, 3))
    script.used(0, ONLY_CARD, 0)
    run_script(script, runner)


def test_memory_below_a_freed_device_is_freed_with_the_client(script: CoreScript, runner: Path) -> None:
    wire = script.wire
    free, memory = wire.free(ROOT, CARD), wire.memory(ROOT, CARD, 3, 8 * MIB)
    script.before(0, free, slot=1)
    script.before(0, memory)
    script.after(memory, handle=3, size=8 * MIB)
    script.after(free, slot=1)
    script.used(0, ONLY_CARD, 8 * MIB)
    script.forwarded(0, wire.free(ROOT, ROOT))
    script.used(0, ONLY_CARD, 0)
    run_script(script, runner)


def test_memory_below_a_freed_client_is_freed_with_the_file(script: CoreScript, runner: Path) -> None:
    wire = script.wire
    free, memory = wire.free(ROOT, ROOT), wire.memory(ROOT, CARD, 3, 8 * MIB)
    script.before(0, free, slot=1)
    script.before(0, memory)
    script.after(memory, handle=3, size=8 * MIB)
    script.after(free, slot=1)
    script.used(0, ONLY_CARD, 8 * MIB)
    run_script(script, runner)


def test_a_late_free_does_not_affect_a_reused_handle(script: CoreScript, runner: Path) -> None:
    """Two calls free a device, one wins, and a new device takes its place: memory below the new one is freed with it."""
    wire = script.wire
    free = wire.free(ROOT, CARD)
    script.before(0, free, slot=1)
    script.before(0, free, slot=2)
    script.after(free, slot=1)
    script.forwarded(0, wire.device(ROOT, CARD, 0), handle=CARD)
    script.after(free, slot=2, status=0x57)
    hold_memory(script, 8 * MIB, 1)
    script.forwarded(0, wire.free(ROOT, CARD))
    script.used(0, ONLY_CARD, 0)
    run_script(script, runner)


def test_a_duplicate_holds_the_charge_before_the_driver_is_asked(script: CoreScript, runner: Path) -> None:
    wire = script.wire
    hold_memory(script, 8 * MIB, 1)
    dup = wire.dup(ROOT, CARD, 2, ROOT, 1)
    script.before(0, dup, slot=1)
    script.forwarded(0, wire.free(ROOT, 1))
    script.used(0, ONLY_CARD, 8 * MIB, "used while the second name is with the driver")
    script.after(dup, slot=1, handle=2, status=0)
    script.used(0, ONLY_CARD, 8 * MIB)
    script.before(0, wire.dup(ROOT, CARD, 3, ROOT, 2), slot=1)
    script.forwarded(0, wire.free(ROOT, 2))
    script.after(dup, slot=1, status=0x57)
    script.used(0, ONLY_CARD, 0, "used when it came too late")
    run_script(script, runner)
