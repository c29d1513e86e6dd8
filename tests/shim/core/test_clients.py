"""Controls that act on other clients' channels: those of other containers cannot be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.core.script import NESTED, CoreScript
from tests.shim.core.steps import CARD, OTHER_CARD, OTHER_ROOT, ROOT, begin_script, run_script
from tests.shim.core.wire import (
    CLIENT_LISTS,
    DISABLE_CHANNELS,
    NAMES_CLIENT,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    CoreWire,
    WireStruct,
)

FOREIGN = 0xC1D0000C
NEWEST = 595
"""The branch that has them all."""
MOST = 64
FLAGS, SERIALIZED = 12, 4
SET_TIMESLICE, CHANNEL_PROPERTIES = 0xA06C0103, 0x80170F

pytestmark = pytest.mark.parametrize("wire", [CoreWire(NEWEST)], ids=[NEWEST])


@pytest.fixture
def script(script: CoreScript) -> CoreScript:
    """Two clients of one container, and the core has seen all there are."""
    script.knows_all_clients()
    begin_script(script, file=1, owner=0, client=OTHER_ROOT, device=OTHER_CARD)
    return script


@pytest.mark.parametrize("command", CLIENT_LISTS)
def test_a_list_that_names_another_container_s_client_is_refused(
    script: CoreScript, runner: Path, command: int
) -> None:
    wire = script.wire
    for clients in ([FOREIGN], [ROOT, FOREIGN], [ROOT] * (MOST - 1) + [FOREIGN]):
        script.refused(0, wire.channel_list(ROOT, CARD, command, clients), NOT_PERMITTED)
    script.refused(0, wire.channel_list(ROOT, CARD, command, [FOREIGN], count=1 << 31), NOT_PERMITTED)
    script.refused(0, wire.channel_list(ROOT, CARD, command, [FOREIGN]), NOT_PERMITTED, wrapped=True)
    for clients in ([], [ROOT], [ROOT, OTHER_ROOT], [ROOT] * MOST):
        script.forwarded(0, wire.channel_list(ROOT, CARD, command, clients))
    script.forwarded(0, wire.channel_list(ROOT, CARD, command, [ROOT, FOREIGN], count=1), say="only the first is named")
    script.forwarded(1, wire.free(OTHER_ROOT, OTHER_ROOT))
    script.refused(0, wire.channel_list(ROOT, CARD, command, [OTHER_ROOT]), NOT_PERMITTED)
    run_script(script, runner, 0, 1)


@pytest.mark.parametrize("command", NAMES_CLIENT)
def test_no_control_names_another_container_s_client(script: CoreScript, runner: Path, command: int) -> None:
    script.refused(0, script.wire.named_client(ROOT, CARD, command, FOREIGN), NOT_PERMITTED)
    for client in (ROOT, OTHER_ROOT, 0):
        script.forwarded(0, script.wire.named_client(ROOT, CARD, command, client))
    run_script(script, runner, 0, 1)


def test_a_time_slice_is_handed_on_only_as_it_was_checked(script: CoreScript, runner: Path) -> None:
    call = script.wire.control(ROOT, CARD, SET_TIMESLICE, WireStruct(0, 8, {0: ("Q", 1_000_000)}))
    script.forwarded(0, call)
    serialized = WireStruct(call.number, call.size, call.fields | {FLAGS: ("I", SERIALIZED)}, call.status)
    script.refused(0, serialized, NOT_SUPPORTED)
    unreadable = WireStruct(call.number, call.size, call.fields | {16: ("Q", NESTED << 8)}, call.status)
    script.refused(0, unreadable, NOT_SUPPORTED)
    script.refused(
        0, script.wire.control(ROOT, CARD, CHANNEL_PROPERTIES, WireStruct(0, 16, {0: ("I", 1)})), NOT_SUPPORTED
    )
    run_script(script, runner, 0, 1)


def test_a_list_that_cannot_be_read_is_refused(script: CoreScript, runner: Path) -> None:
    """Another thread could make it readable before the driver looks; and in another encoding it is not understood."""
    call = script.wire.channel_list(ROOT, CARD, DISABLE_CHANNELS, [ROOT])
    serialized = WireStruct(call.number, call.size, call.fields | {FLAGS: ("I", SERIALIZED)}, call.status)
    script.refused(0, serialized, NOT_SUPPORTED)
    unreadable = WireStruct(call.number, call.size, call.fields | {16: ("Q", NESTED << 8)}, call.status)
    script.refused(0, unreadable, NOT_SUPPORTED)
    script.grows(0)
    script.refused(0, call, NOT_SUPPORTED)
    run_script(script, runner, 0, 1)
