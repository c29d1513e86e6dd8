"""Device ids, the size of their list, and which of them are preferred."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vrampack.agent.kubelet.device_ids import (
    HEALTHY,
    MAX_LIST_BYTES,
    UNHEALTHY,
    WantedUnits,
    build_device_list,
    choose_preferred_ids,
    count_readable_units,
    count_units_by_card,
    find_list_problem,
    make_device_ids,
    parse_card_uuid,
)
from vrampack.cards.node import CardFacts
from vrampack.cards.units import count_card_units

UUIDS = st.builds(
    lambda kind, value: f"{kind}-{uuid.UUID(int=value)}", st.sampled_from(["GPU", "MIG"]), st.integers(0, 2**128 - 1)
)
MAX_ID = 63
"""Labels and file names that are made of ids end there."""


def a_card(name: str, units: int, *, index: int = 0, healthy: bool = True) -> CardFacts:
    return CardFacts(index, units, units * 1024, name, healthy=healthy)


@settings(deadline=None)
@given(UUIDS, st.integers(1, 600))
def test_ids_name_their_card_and_are_short(name: str, units: int) -> None:
    ids = make_device_ids(a_card(name, units))
    assert len({*ids}) == units
    assert max(map(len, ids)) <= MAX_ID
    assert {parse_card_uuid(each) for each in ids} == {name}
    assert count_units_by_card(ids) == count_readable_units(ids) == {name: units}


@settings(deadline=None)
@given(UUIDS)
def test_ids_are_the_same_after_every_start(name: str) -> None:
    assert make_device_ids(a_card(name, 3)) == [f"{name}::0", f"{name}::1", f"{name}::2"]


@pytest.mark.parametrize("other", ["GPU-0-_-3", "GPU-0", "", "::3", "GPU-0::", "GPU-0::x", "GPU-0::-1", "GPU-0::٣"])
def test_ids_of_another_plugin_are_not_ours(other: str) -> None:
    assert parse_card_uuid(other) is None
    assert count_units_by_card(["GPU-0::1", other]) is None


def test_gpushare_ids_are_counted() -> None:
    assert count_readable_units(["GPU-0-_-0", "GPU-0-_-1", "GPU-1::7", "nvidia0"]) == {"GPU-0": 2, "GPU-1": 1}


def test_one_unhealthy_card_leaves_the_others_as_they_are() -> None:
    answer = build_device_list([a_card("GPU-0", 2), a_card("GPU-1", 1, index=1, healthy=False)])
    assert [(each.ID, each.health) for each in answer.devices] == [
        ("GPU-0::0", HEALTHY), ("GPU-0::1", HEALTHY), ("GPU-1::0", UNHEALTHY),
    ]  # fmt: skip


NODES = {
    # cards, MiB of each, MiB per unit: devices in all, and what to set when they are too many
    "T4": (1, 15360, 1024, 15, ""),
    "A10": (4, 23028, 1024, 88, ""),
    "8 x V100": (8, 16130, 1024, 120, ""),
    "1 x 80 GiB in MiB": (1, 81920, 1, 81920, "set 2 "),
    "1 x 80 GiB in 256 MiB": (1, 81920, 256, 320, ""),
    "8 x 80 GiB in MiB": (8, 81920, 1, 655360, "set 16 "),
    "8 x 80 GiB in 256 MiB": (8, 81920, 256, 2560, ""),
    "8 x 80 GiB": (8, 81920, 1024, 640, ""),
    "8 x H200 in MiB": (8, 143771, 1, 1150168, "set 32 "),
    "8 x H200 in 256 MiB": (8, 143771, 256, 4488, ""),
    "8 x H200": (8, 143771, 1024, 1120, ""),
    "8 x 288 GiB in MiB": (8, 294912, 1, 2359296, "set 64 "),
    "8 x 288 GiB in 256 MiB": (8, 294912, 256, 9216, ""),
    "8 x 288 GiB": (8, 294912, 1024, 2304, ""),
    "no cards": (0, 0, 1024, 0, ""),
}


def cards_of(count: int, memory_mib: int, unit_mib: int) -> list[CardFacts]:
    names = [f"GPU-{uuid.UUID(int=2**127 + number)}" for number in range(count)]
    units = count_card_units(memory_mib, unit_mib)
    return [CardFacts(index, units, memory_mib, name) for index, name in enumerate(names)]


@pytest.mark.parametrize(("count", "memory_mib", "unit_mib", "devices", "advice"), NODES.values(), ids=NODES)
def test_a_list_that_kubelet_cannot_take_is_refused(
    count: int, memory_mib: int, unit_mib: int, devices: int, advice: str
) -> None:
    cards = cards_of(count, memory_mib, unit_mib)
    assert sum(card.units for card in cards) == devices
    problem = find_list_problem(cards, unit_mib)
    assert bool(advice) == bool(problem)
    if devices < 100_000:  # a list of millions takes seconds to make
        assert (build_device_list(cards).ByteSize() > MAX_LIST_BYTES) == bool(problem)
    assert advice in problem
    if advice:
        assert f"unit_mib: {unit_mib} makes {devices} devices" in problem
        assert problem.endswith(": running pods keep their memory, requests count in the new unit")


@pytest.mark.parametrize("name", [name for name, row in NODES.items() if row[-1]])
def test_the_suggested_unit_makes_a_list_that_kubelet_accepts(name: str) -> None:
    count, memory_mib, _, _, advice = NODES[name]
    advised = int(advice.split()[1])
    assert find_list_problem(cards_of(count, memory_mib, advised), advised) == ""
    assert build_device_list(cards_of(count, memory_mib, advised)).ByteSize() < MAX_LIST_BYTES
    assert find_list_problem(cards_of(count, memory_mib, advised // 2), advised // 2) != ""


@st.composite
def wishes(draw: st.DrawFn) -> tuple[list[str], list[str], int, dict[str, int] | None]:
    """Available ids, those that must be in, how many, and the card that the container has; some ids are not ours."""
    ids = [f"GPU-{card}::{unit}" for card in range(4) for unit in range(6)] + ["GPU-0-_-1", "x"]
    available = draw(st.lists(st.sampled_from(ids), unique=True, min_size=1))
    size = draw(st.integers(0, len(available)))
    must = draw(st.lists(st.sampled_from(available), unique=True, max_size=size))
    units = st.dictionaries(st.sampled_from(["GPU-0", "GPU-1", "GPU-9"]), st.integers(0, 8), max_size=2)
    return available, must, size, draw(st.none() | units)


@settings(deadline=None)
@given(wish=wishes(), is_whole=st.booleans())
def test_preferred_ids_are_available_and_have_the_requested_count(
    wish: tuple[list[str], list[str], int, dict[str, int] | None],
    is_whole: bool,  # noqa: FBT001 - drawn
) -> None:
    available, must, size, wanted = wish
    chosen = choose_preferred_ids(available, must, size, None if wanted is None else WantedUnits(wanted, is_whole))
    assert len(chosen) == len({*chosen}) == size
    assert {*must} <= {*chosen} <= {*available}


@settings(deadline=None)
@given(wishes())
def test_ids_of_the_containers_own_cards_are_preferred(
    wish: tuple[list[str], list[str], int, dict[str, int] | None],
) -> None:
    """If all of them have enough: a part of each would name cards that the container does not have anyway."""
    available, _, size, wanted = wish
    chosen = choose_preferred_ids(available, [], size, None if wanted is None else WantedUnits(wanted))
    units = count_units_by_card(each for each in chosen if parse_card_uuid(each)) or {}
    there = {card: sum(parse_card_uuid(each) == card for each in available) for card in wanted or {}}
    assume(all(there[card] >= asked for card, asked in (wanted or {}).items()))
    left = size
    for card, asked in (wanted or {}).items():
        assert units.get(card, 0) >= min(asked, left)
        left -= min(asked, left)


def test_a_card_with_too_few_free_ids_is_not_used_partly() -> None:
    """2 of GPU-0, where 1 is free: both of GPU-1, so that kubelet counts the container on one card at least."""
    available = ["GPU-0::0", "GPU-1::0", "GPU-1::1"]
    assert choose_preferred_ids(available, [], 2, WantedUnits({"GPU-0": 2})) == ["GPU-1::0", "GPU-1::1"]


def test_all_ids_of_whole_cards_are_used_before_those_of_others() -> None:
    """159 units pay for cards of 80 and 79: 79 of each by the record, then the last one of the larger card."""
    available = [f"GPU-{card}::{unit}" for card, units in enumerate((80, 79, 1)) for unit in range(units)]
    wanted = WantedUnits({"GPU-0": 79, "GPU-1": 79}, is_whole=True)
    assert count_units_by_card(choose_preferred_ids(available, [], 159, wanted)) == {"GPU-0": 80, "GPU-1": 79}
    assert count_units_by_card(choose_preferred_ids(available, [], 160, wanted)) == {
        "GPU-0": 80,
        "GPU-1": 79,
        "GPU-2": 1,
    }


def test_without_a_reservation_the_best_fitting_card_is_preferred() -> None:
    """3 of the card with 4 left rather than of the one with 6."""
    available = [f"GPU-0::{unit}" for unit in range(6)] + [f"GPU-1::{unit}" for unit in range(4)]
    assert count_units_by_card(choose_preferred_ids(available, [], 3, None)) == {"GPU-1": 3}
