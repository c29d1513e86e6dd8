"""Channel groups are counted, those that the driver makes for a channel by itself included, and a container has so many at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.core.script import CoreScript
from tests.shim.core.steps import (
    BAD_STATE,
    CARD,
    EFAULT,
    OTHER_CARD,
    OTHER_ROOT,
    ROOT,
    begin_script,
    run_script,
)
from tests.shim.core.wire import CHANNEL_GROUP, NO_CHANNELS, NOT_SUPPORTED, WireStruct

FIRST, SECOND, THIRD, CHANNEL = 0x11, 0x12, 0x13, 0x21


def a_group(script: CoreScript, handle: int, client: int = ROOT, device: int = CARD) -> WireStruct:
    return script.wire.alloc(client, device, handle, CHANNEL_GROUP, WireStruct(0, 20, {12: ("I", 1)}))


@pytest.fixture
def script(script: CoreScript) -> CoreScript:
    script.groups_at_most(2)
    return script


def test_a_group_over_the_limit_is_refused_until_one_is_freed(script: CoreScript, runner: Path) -> None:
    begin_script(script, file=1, owner=0, client=OTHER_ROOT, device=OTHER_CARD)
    script.forwarded(0, a_group(script, FIRST), handle=FIRST)
    script.forwarded(1, a_group(script, FIRST, OTHER_ROOT, OTHER_CARD), handle=FIRST)
    script.refused(0, a_group(script, SECOND), NO_CHANNELS)
    script.forwarded(0, script.wire.free(ROOT, FIRST))
    script.forwarded(0, a_group(script, SECOND), handle=SECOND)
    script.refused(1, a_group(script, SECOND, OTHER_ROOT, OTHER_CARD), NO_CHANNELS)
    script.close(1)
    script.forwarded(0, a_group(script, THIRD), handle=THIRD)
    script.kept(4, 2, 2)
    script.forwarded(0, script.wire.free(ROOT, CARD))
    script.kept(1, 0)
    run_script(script, runner)


def test_what_the_driver_refused_does_not_count_and_what_is_in_doubt_does(script: CoreScript, runner: Path) -> None:
    script.forwarded(0, a_group(script, FIRST), status=BAD_STATE)
    script.forwarded(0, script.wire.channel(ROOT, CARD, CHANNEL, []), status=BAD_STATE)
    script.kept(2, 0)
    script.forwarded(0, a_group(script, FIRST), result=-EFAULT)
    script.kept(3, 1, 1)
    script.grows(0)
    script.forwarded(0, a_group(script, FIRST), handle=FIRST)
    script.refused(0, a_group(script, SECOND), NO_CHANNELS)
    run_script(script, runner)


def test_a_group_counts_until_its_last_duplicate_goes(script: CoreScript, runner: Path) -> None:
    begin_script(script, file=1, owner=0, client=OTHER_ROOT, device=OTHER_CARD)
    script.forwarded(0, a_group(script, FIRST), handle=FIRST)
    script.forwarded(1, script.wire.dup(OTHER_ROOT, OTHER_CARD, SECOND, ROOT, FIRST), handle=SECOND)
    script.forwarded(0, script.wire.free(ROOT, FIRST))
    script.kept(5, 1, 1)
    script.forwarded(1, script.wire.free(OTHER_ROOT, SECOND))
    script.kept(4, 0)
    run_script(script, runner, 0, 1)


def test_a_channel_counts_unless_it_is_in_a_group(script: CoreScript, runner: Path) -> None:
    script.forwarded(0, a_group(script, FIRST), handle=FIRST)
    for handle in range(CHANNEL, CHANNEL + 8):
        script.forwarded(0, script.wire.channel(ROOT, FIRST, handle, []), handle=handle)
    script.kept(11, 1, 1)
    script.forwarded(0, script.wire.channel(ROOT, CARD, SECOND, []), handle=SECOND)
    script.refused(0, script.wire.channel(ROOT, CARD, THIRD, []), NO_CHANNELS)
    script.forwarded(0, script.wire.free(ROOT, SECOND))
    script.kept(11, 1, 1)
    run_script(script, runner)


def test_a_channel_whose_group_was_exchanged_meanwhile_counts(script: CoreScript, runner: Path) -> None:
    """Before the driver looks, another thread frees the group, and makes a device by its handle."""
    channel = script.wire.channel(ROOT, FIRST, CHANNEL, [])
    free = script.wire.free(ROOT, FIRST)
    script.forwarded(0, a_group(script, FIRST), handle=FIRST)
    script.before(0, channel)
    script.before(0, free, slot=1)
    script.after(free, slot=1)
    device = script.wire.device(ROOT, FIRST, 0)
    script.before(0, device, slot=1)
    script.after(device, slot=1, handle=FIRST)
    script.after(channel, handle=CHANNEL)
    script.kept(4, 1, 1)
    run_script(script, runner)


def test_neither_groups_nor_channels_are_made_by_calls_for_other_things(script: CoreScript, runner: Path) -> None:
    for kind in (CHANNEL_GROUP, 0xC86F):
        script.refused(0, script.wire.window(kind), NOT_SUPPORTED)
        script.refused(0, script.wire.context(kind), NOT_SUPPORTED)
    script.kept(2, 0)
    run_script(script, runner)
