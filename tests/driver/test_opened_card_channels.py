"""Channels that NVIDIA's own driver makes: a container has so many groups at most, and acts on no other container's channels.

The driver hands a control on to the card with whatever clients a program names in it, and `fakepci` counts those that arrive.
"""

from __future__ import annotations

import pytest

from tests.driver.opened_card import limited, on_node, read_lost_mib
from tests.driver.real_driver import RealDriver
from tests.fakes.driver.driver import MIB
from tests.support.polling import wait_until

ARRIVED = "/sys/module/fakepci/parameters/controls_with_clients"
MOST = 64
NO_GROUP, FOREIGN = "0x4f", "0x1b"
"""What the driver answers when it has no group left, and the module when a client is another container's."""
CONTROLS = {
    "FIFO_DISABLE_CHANNELS": "stop {client} {channel}",
    "GR_CTXSW_ZCULL_MODE": "name {client} 0x20801205 16 4",
    "GR_CTXSW_ZCULL_BIND": "name {client} 0x20801208 24 0",
    "GR_CTXSW_PM_BIND": "name {client} 0x20801209 40 0",
    "GR_CTXSW_PREEMPTION_BIND": "name {client} 0x20801211 104 4",
}
"""The words by which `channels` sends each of those that the driver hands on: command, size, and where the client is in it."""


@pytest.mark.parametrize("way", ["groups", "bare"])
def test_the_channel_groups_of_a_container_are_bounded(card: RealDriver, way: str) -> None:
    """Also those that the driver makes for a channel by itself; without a limit it makes more."""
    place, other = limited(card, "a"), limited(card, "b")
    assert on_node(card).run("channels", way, f"{MOST + 1}").lines[0] == f"{MOST + 1}, then 0x0"
    with place.running("channels", way, f"{MOST + 1}") as program:
        assert program.read_line() == f"{MOST}, then {NO_GROUP}"
        program.wait_for_line("made")
        assert place.run("channels", way, "1").lines[0] == f"0, then {NO_GROUP}"
        assert other.run("channels", way, "1").lines[0] == "1, then 0x0"
        program.resume()
        program.wait_for_line("freed")
        program.resume()
        program.wait_for_line("again: 0x0")
        program.wait_for_end()
    wait_until(lambda: _count_groups(card) == 0, what="that their files are closed")


@pytest.mark.parametrize("words", CONTROLS.values(), ids=CONTROLS)
def test_a_control_that_names_another_container_s_client_does_not_reach_the_card(card: RealDriver, words: str) -> None:
    """From the same container, and from where there is no limit, the driver hands it on and answers 0."""
    places = [limited(card, name) for name in ("a", "b")]
    with places[0].running("channels", "lend") as lender:
        client, channel = lender.read_line().split()
        lender.wait_for_line("lent")
        for place, answer, reached in ((places[1], FOREIGN, 0), (places[0], "0x0", 1), (on_node(card), "0x0", 1)):
            before = _count_arrived(card)
            (said,) = place.run("channels", *words.format(client=client, channel=channel).split()).lines
            assert (said.split(": ")[1], _count_arrived(card) - before) == (answer, reached)


def test_a_time_slice_is_at_most_what_libcuda_sets(card: RealDriver) -> None:
    assert on_node(card).run("channels", "slice", "1000000").lines == ["0x0, 1000000 us"]
    assert limited(card, "a").run("channels", "slice", "1000000").lines == ["0x0, 2048 us"]


def test_the_memory_that_a_channel_was_given_stays_charged(card: RealDriver) -> None:
    """535 gives it back with its handle, other releases may keep it for the channel (D35): no container gains by either."""
    before = read_lost_mib(card)
    with limited(card, "a").running("export", "channel", "1000") as program:
        program.wait_for_line("kept 4000 MiB, then 0x51")
        program.wait_for_line("kept")
        assert card.world.card("a").used == 4000 * MIB
        assert read_lost_mib(card) - before < 1000
    wait_until(lambda: card.world.card("a").used == 0, what="that its file is closed")


def _count_arrived(card: RealDriver) -> int:
    return int(card.machine.read(ARRIVED))


def _count_groups(card: RealDriver) -> int:
    return sum(int(each.fields["groups"]) for each in card.world.instances().values())
