"""What follows from a mix: prices against a brute-force bound, fragments against their definition, what is forgotten."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.mix.cutting_stock import price_sizes, value_pieces
from policies.mix.forecast import build_forecast
from policies.mix.fragments import FragmentTables
from policies.mix.request_mix import (
    LEARNING_WINDOW,
    MAX_LEARNED_REQUESTS,
    LearnedMix,
    MixedRequest,
    RequestMix,
    count_requests,
)
from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""


def list_patterns(sizes: list[int], capacity: int) -> list[tuple[int, ...]]:
    """Every way to cut one card, by brute force."""
    counts = [range(capacity // size + 1) for size in sizes]
    return [pattern for pattern in product(*counts) if sum(map(int.__mul__, pattern, sizes)) <= capacity]


@PATIENT
@given(st.dictionaries(st.integers(3, 12), st.integers(1, 9), min_size=1, max_size=4))
def test_no_pattern_of_a_card_is_worth_more_than_the_card_and_the_bound_is_not_beaten(demand: dict[int, int]) -> None:
    """Weak duality: the prices of the demand are at most the cards of any solution; full patterns of one size are one."""
    prices = price_sizes(demand, 12)
    sizes = sorted(demand)
    for pattern in list_patterns(sizes, 12):
        assert sum(many * prices[size] for many, size in zip(pattern, sizes, strict=True)) <= 1 + 1e-6
    bound = sum(many * prices[size] for size, many in demand.items())
    assert bound <= sum(many / (12 // size) for size, many in demand.items()) + 1e-6
    assert bound >= sum(many * size for size, many in demand.items()) / 12 - 1e-6


def test_the_price_of_a_mix_is_its_cutting_stock_bound() -> None:
    """16 units, as many 9 as 7 and no other: each pair fills a card, so 2 pieces cost one card together."""
    prices = price_sizes({9: 1, 7: 1}, 16)
    assert prices[9] + prices[7] == pytest.approx(1.0)
    assert prices[9] >= 0.5


def test_a_piece_that_no_size_fits_is_worth_nothing() -> None:
    """Cards of 16 and requests of 5 alone: 3 fill 15, so a third of a card each; 4 units are worth nothing, 11 two thirds."""
    values = value_pieces(price_sizes({5: 1}, 16), 16)
    assert [values[units] for units in (4, 5, 11, 16)] == pytest.approx([0, 1 / 3, 2 / 3, 1])


REQUESTS = st.builds(
    MixedRequest,
    st.none()
    | st.builds(
        CardRequest,
        st.integers(1, 8),
        st.integers(1, 3),
        models=st.sampled_from([None, frozenset("A"), frozenset("AB")]),
    ),
    st.none() | st.builds(HostResources, st.integers(0, 4), st.just(1)),
)


@PATIENT
@given(
    st.lists(st.tuples(REQUESTS, st.floats(0.1, 1)), max_size=5),
    st.lists(st.integers(0, 8), max_size=4),
    st.sampled_from("ABC"),
    st.integers(0, 5),
)
def test_a_fragment_is_what_typical_requests_cannot_use(
    typical: list[tuple[MixedRequest, float]], free_units: list[int], model: str, cpu_milli: int
) -> None:
    """The definition of FGD, word by word."""
    want = 0.0
    for request, share in typical:
        cards = request.cards
        unfit = cards is None or (request.host is not None and request.host.cpu_milli > cpu_milli)
        if cards is not None and not unfit:
            enough = [free for free in free_units if free >= cards.units]
            unfit = len(enough) < cards.count or (cards.models is not None and model not in cards.models)
        usable = 0 if unfit or cards is None else sum(free for free in free_units if free >= cards.units)
        want += share * (sum(free_units) - usable)
    assert FragmentTables(typical, 2.0).measure_node(model, free_units, cpu_milli) == pytest.approx(want / 2)


def test_pressure_is_the_demand_for_a_model_per_card_of_that_model() -> None:
    """10 cards of 8 units; of 10 requests for a card, 3 insist on A, which has 2 cards: 1.5 for each, nothing on B."""
    cards = {("A", 8): 2, ("B", 8): 8}
    mix = RequestMix({MixedRequest(CardRequest(8)): 7.0, MixedRequest(CardRequest(8, models=frozenset("A"))): 3.0})
    assert build_forecast(mix, cards).pressure == pytest.approx({"A": 1.5})


def test_the_host_share_of_a_card_is_the_mean_of_the_requests() -> None:
    """Half a card with 1 CPU and a whole one with 5: 6 CPUs for a card and a half."""
    mix = RequestMix(
        {
            MixedRequest(CardRequest(4), HostResources(1000, 600)): 1.0,
            MixedRequest(CardRequest(8), HostResources(5000, 900)): 1.0,
            MixedRequest(None, HostResources(64_000, 0)): 9.0,
        }
    )
    assert build_forecast(mix, {("A", 8): 1}).host_per_card == HostResources(4000, 1000)


def test_a_learned_mix_forgets_what_came_long_ago_and_is_bounded() -> None:
    learned = LearnedMix()
    for _ in range(LEARNING_WINDOW - 1):
        learned.count_request(MixedRequest(CardRequest(1)))
    learned.count_request(MixedRequest(CardRequest(2)))
    assert learned.take_mix().weights == {
        MixedRequest(CardRequest(1)): (LEARNING_WINDOW - 1) / 2,
        MixedRequest(CardRequest(2)): 0.5,
    }
    for units in range(3, 3 * MAX_LEARNED_REQUESTS):
        learned.count_request(MixedRequest(CardRequest(units)))
    assert len(learned.take_mix().weights) <= 2 * MAX_LEARNED_REQUESTS
    assert MixedRequest(CardRequest(1)) in learned.take_mix().weights


def test_the_typical_requests_do_not_depend_on_the_order_of_arrival() -> None:
    """Ten requests, all equally frequent: half of them are typical."""
    arrivals = [MixedRequest(CardRequest(units)) for units in range(1, 11)]
    typical = [count_requests(order).list_typical_requests(0.5) for order in (arrivals, arrivals[::-1])]
    assert typical[0] == typical[1] == [(request, 0.2) for request in arrivals[:5]]
