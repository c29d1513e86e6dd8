"""Channels: a container has so many channel groups at most, and stops no other container's."""

from __future__ import annotations

import errno
import re

import pytest

from tests.shim.kmod.world import NODES, KmodWorld, fails_with
from tests.support.polling import wait_until

LIMIT = {0: 4301}
MOST = 64
REFUSED = "0x4f"
"""NV_ERR_NO_FREE_FIFOS: what the driver says when it has none left."""


@pytest.mark.parametrize("way", ["groups", "bare"])
def test_the_channel_groups_of_a_container_are_bounded(world: KmodWorld, way: str) -> None:
    """Also those that the driver makes for a channel by itself. They are given back one by one, and with their file."""
    place, other = world.limited("a", LIMIT), world.limited("b", LIMIT)
    with place.running("channels", way, "3000") as program:
        program.wait_for_line(f"{MOST}, then {REFUSED}")
        program.wait_for_line("made")
        assert _groups(world) == {"a": MOST, "b": 0}
        with place.running("channels", way, "1") as second:
            second.wait_for_line(f"0, then {REFUSED}")
        with other.running("channels", way, "1") as third:
            third.wait_for_line("1, then 0x0")
        program.resume()
        program.wait_for_line("freed")
        assert _groups(world)["a"] == MOST - 1
        program.resume()
        program.wait_for_line("again: 0x0")
        program.wait_for_end()
    wait_until(lambda: _groups(world) == {"a": 0, "b": 0}, what="that their files are closed")
    world.forget()


def test_each_card_adds_its_max_groups(world: KmodWorld) -> None:
    world.command("cards 0 1")
    world.machine.write(f"{NODES}/0/max_groups", "3\n")
    for wrong in ("0", "2049", "x"):
        with fails_with(errno.EINVAL):
            world.machine.write(f"{NODES}/0/max_groups", f"{wrong}\n")
    place = world.limited("a", {0: 4301, 1: 1000})
    assert place.run("channels", "groups", "100").lines[0] == f"{3 + MOST}, then {REFUSED}"
    world.machine.write(f"{NODES}/0/max_groups", f"{MOST}\n")
    world.forget()


def test_another_container_s_channels_are_not_stopped(world: KmodWorld) -> None:
    places = [world.limited(name, LIMIT) for name in ("a", "b")]
    with places[0].running("channels", "lend") as lender:
        lent = re.fullmatch(r"(\d+) (\d+)", lender.read_line())
        assert lent
        lender.wait_for_line("own: 0x0")
        lender.wait_for_line("lent")
        assert places[1].run("channels", "stop", *lent.groups()).lines == ["stopped: 0x1b"]
        assert places[0].run("channels", "stop", *lent.groups()).lines == ["stopped: 0x0"]
        assert world.host().run("channels", "stop", *lent.groups()).lines == ["stopped: 0x0"]
    world.forget()


def test_a_time_slice_is_at_most_what_libcuda_sets(world: KmodWorld) -> None:
    """A longer one would take the card from the others."""
    place = world.limited("a", LIMIT)
    assert place.run("channels", "slice", "1000000").lines == ["0x0, 2048 us"]
    assert place.run("channels", "slice", "0").lines == ["0x0, 2048 us"]
    assert place.run("channels", "slice", "500").lines == ["0x0, 500 us"]
    assert world.host().run("channels", "slice", "1000000").lines == ["0x0, 1000000 us"]
    world.forget()


def _groups(world: KmodWorld) -> dict[str, int]:
    return {name: int(instance.fields["groups"]) for name, instance in world.instances().items()}
