"""What is exported to a control file stays charged as long as that is open, and what is imported as long as the new object."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.core.script import ONLY_CARD, CoreScript
from tests.shim.core.steps import (
    BAD_STATE,
    CARD,
    EFAULT,
    OTHER_CARD,
    OTHER_ROOT,
    ROOT,
    begin_script,
    hold_memory,
    run_script,
)
from tests.shim.core.wire import CHANNEL_GROUP, MIB, NO_MEMORY, NOT_SUPPORTED

EXPORTED, STRANGER = 1, 8
"""Files."""
LAST_PLACE = 0xFFFF


@pytest.fixture
def script(script: CoreScript) -> CoreScript:
    """With a file to export to."""
    script.open(EXPORTED, 0)
    return script


def test_an_exported_charge_stays_with_the_file_after_the_handle_is_freed(script: CoreScript, runner: Path) -> None:
    wire = script.wire
    hold_memory(script, 4000 * MIB, 1)
    script.transferred(0, wire.export(ROOT, 1, EXPORTED), EXPORTED)
    script.forwarded(0, wire.free(ROOT, 1))
    script.used(0, ONLY_CARD, 4000 * MIB)
    script.refused(0, wire.memory(ROOT, CARD, 2, 302 * MIB), NO_MEMORY)
    script.close(0)
    script.used(0, ONLY_CARD, 4000 * MIB, "used when its client has gone")
    run_script(script, runner, EXPORTED)


@pytest.mark.parametrize("result", [0, -EFAULT])
def test_a_handle_may_be_freed_during_its_export(script: CoreScript, runner: Path, result: int) -> None:
    """Also if the result of the export is unknown."""
    call, free = script.wire.exports(ROOT, [1], EXPORTED), script.wire.free(ROOT, 1)
    hold_memory(script, 8 * MIB, 1)
    script.before(0, call)
    script.asks(f"Q 0 {EXPORTED}", f"1 {EXPORTED}", "it may go on")
    script.before(0, free, slot=1)
    script.after(free, slot=1)
    script.used(0, ONLY_CARD, 8 * MIB, "used between")
    script.after(call, result=result)
    script.used(0, ONLY_CARD, 8 * MIB)
    run_script(script, runner, EXPORTED, 0)


def test_memory_that_the_driver_did_not_export_is_not_kept_charged(script: CoreScript, runner: Path) -> None:
    """The driver refused, found no such file, or found that place in it taken."""
    wire = script.wire
    script.knows_all_clients()
    hold_memory(script, 8 * MIB, 1)
    hold_memory(script, 8 * MIB, 2)
    script.transferred(0, wire.export(ROOT, 1, EXPORTED), EXPORTED, status=BAD_STATE)
    script.forwarded(0, wire.export(ROOT, 1, EXPORTED), status=BAD_STATE)
    script.transferred(0, wire.exports(ROOT, [1, 1], EXPORTED, index=4), EXPORTED)
    script.transferred(0, wire.exports(ROOT, [2], EXPORTED, index=5), EXPORTED, may=False, status=BAD_STATE)
    script.transferred(0, wire.exports(ROOT, [0], EXPORTED, index=4), EXPORTED, may=False, status=BAD_STATE)
    script.transferred(0, wire.exports(ROOT, [2], 77), STRANGER, may=False, status=BAD_STATE, descriptor=77)
    script.forwarded(0, wire.free(ROOT, 2))
    script.used(0, ONLY_CARD, 8 * MIB)
    script.forwarded(0, wire.free(ROOT, 1))
    script.used(0, ONLY_CARD, 8 * MIB)
    script.kept(4, 1)
    run_script(script, runner, EXPORTED, 0)


def test_imported_memory_stays_charged_after_the_exporting_file_is_closed(script: CoreScript, runner: Path) -> None:
    """Once for all its handles, in another process too; without a known handle where the driver has chosen one."""
    wire = script.wire
    begin_script(script, file=2, owner=1, client=OTHER_ROOT, device=OTHER_CARD)
    hold_memory(script, 8 * MIB, 1)
    script.transferred(0, wire.export(ROOT, 1, EXPORTED), EXPORTED)
    script.transferred(2, wire.import_(OTHER_ROOT, OTHER_CARD, 7, EXPORTED), EXPORTED)
    script.transferred(2, wire.import_(OTHER_ROOT, OTHER_CARD, 0, EXPORTED), EXPORTED)
    script.close(0)
    script.close(EXPORTED)
    script.used(0, ONLY_CARD, 8 * MIB, "used by who imported it")
    script.forwarded(2, wire.free(OTHER_ROOT, 7))
    script.used(0, ONLY_CARD, 8 * MIB, "used under the driver's handle")
    script.forwarded(2, wire.free(OTHER_ROOT, OTHER_CARD))
    script.used(0, ONLY_CARD, 0)
    run_script(script, runner, 2)


def test_imports_from_a_foreign_file_are_refused_where_all_clients_are_known(script: CoreScript, runner: Path) -> None:
    """Elsewhere it is allowed, and the exporter is charged."""
    wire = script.wire
    script.transferred(0, wire.import_(ROOT, CARD, 7, 77), STRANGER, descriptor=77)
    script.knows_all_clients()
    script.transferred(0, wire.import_(ROOT, CARD, 7, 77), STRANGER, may=False, status=BAD_STATE, descriptor=77)
    script.used(0, ONLY_CARD, 0)
    run_script(script, runner, 0, EXPORTED)


def test_many_objects_are_exported_and_imported_at_once(script: CoreScript, runner: Path) -> None:
    """As many as the driver takes, up to the last place; more, or parameters that cannot be read, are refused."""
    wire = script.wire
    for handle in range(1, 513):
        hold_memory(script, 2 * MIB, handle)
    script.transferred(0, wire.exports(ROOT, list(range(1, 513)), EXPORTED, index=LAST_PLACE - 511), EXPORTED)
    for handle in range(1, 513):
        script.forwarded(0, wire.free(ROOT, handle))
    script.used(0, ONLY_CARD, 1024 * MIB)
    taken = list(range(1001, 1129))
    script.transferred(0, wire.imports(ROOT, CARD, taken, EXPORTED, index=LAST_PLACE - 127), EXPORTED)
    script.refused(0, wire.exports(ROOT, [1], EXPORTED, count=513), NOT_SUPPORTED)
    script.refused(0, wire.imports(ROOT, CARD, [1], EXPORTED, count=129), NOT_SUPPORTED)
    script.close(EXPORTED)
    script.used(0, ONLY_CARD, 256 * MIB)
    run_script(script, runner)


def test_a_channel_keeps_the_memory_of_its_userd(script: CoreScript, runner: Path) -> None:
    """Until the channel or its group is freed; memory that is named twice counts once, and a refused channel keeps nothing."""
    wire = script.wire
    hold_memory(script, 4000 * MIB, 1)
    script.forwarded(0, wire.alloc(ROOT, CARD, 0x60, CHANNEL_GROUP), handle=0x60)
    script.forwarded(0, wire.channel(ROOT, CARD, 0x61, [1]), status=BAD_STATE)
    script.forwarded(0, wire.channel(ROOT, 0x60, 0x62, [1, 0, 1], short=True), handle=0x62)
    script.forwarded(0, wire.channel(ROOT, 0x60, 0x63, [1], kind=0xCA6F), handle=0x63)
    script.forwarded(0, wire.free(ROOT, 1))
    script.used(0, ONLY_CARD, 4000 * MIB)
    script.refused(0, wire.memory(ROOT, CARD, 2, 302 * MIB), NO_MEMORY)
    script.forwarded(0, wire.free(ROOT, 0x62))
    script.used(0, ONLY_CARD, 4000 * MIB)
    script.forwarded(0, wire.free(ROOT, 0x60))
    script.used(0, ONLY_CARD, 0)
    hold_memory(script, 8 * MIB, 1)
    script.forwarded(0, wire.channel(ROOT, CARD, 0, [1]), handle=0)
    script.forwarded(0, wire.free(ROOT, 1))
    script.used(0, ONLY_CARD, 8 * MIB, "used by a channel that may or may not exist")
    run_script(script, runner, 0, EXPORTED)


def test_a_transfer_is_refused_when_the_tables_cannot_grow(script: CoreScript, runner: Path) -> None:
    wire = script.wire
    for handle in range(1, 100):
        hold_memory(script, 2 * MIB, handle)
    script.grows(0)
    script.refused(0, wire.exports(ROOT, [1], EXPORTED), NOT_SUPPORTED)
    script.grows(1)
    script.refused(0, wire.exports(ROOT, list(range(1, 100)), EXPORTED), NO_MEMORY)
    script.grows(1)
    script.refused(0, wire.imports(ROOT, CARD, list(range(1, 100)), EXPORTED), NO_MEMORY)
    script.grows(1000)
    script.kept(101, 99)
    run_script(script, runner, 0, EXPORTED)
