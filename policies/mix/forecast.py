"""What follows from a mix of requests for the cards of one cluster. Policies that look ahead read it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property

from policies.mix.cutting_stock import price_in_steps, value_pieces
from policies.mix.fragments import FragmentTables
from policies.mix.request_mix import RequestMix
from vrampack.cards.host_room import HostResources

CardCounts = Mapping[tuple[str, int], int]
"""How many cards the cluster has of each model and number of units."""

TYPICAL_COVERAGE = 0.95
"""The share of all requests that counts as typical; rarer ones do not. It is that of the FGD study."""
MAX_SIZES = 32
"""How many sizes are priced, those with most demand: pods choose their sizes, and each pricing step must stay short."""
MAX_PIECES = 1024
"""The most pieces into which a card is cut for pricing: if a unit is a MiB, sizes are rounded to a thousandth of the card."""


class PieceValues:
    """What a piece of a card of one size is worth, in cards of that size."""

    def __init__(self, values: tuple[float, ...], step: int) -> None:
        self._values = values
        self._step = step

    def value_units(self, units: int) -> float:
        """The best sum of prices that fits into `units`."""
        return self._values[units // self._step]

    def value_cut(self, free_units: int, taken_units: int) -> float:
        """The worth that `free_units` lose when `taken_units` of them are taken."""
        values, step = self._values, self._step
        return values[free_units // step] - values[(free_units - taken_units) // step]


class Forecast:
    """Everything that policies need which depends on the mix and the cluster, but not on a node."""

    def __init__(self, mix: RequestMix, cards: CardCounts) -> None:
        self.mix = mix
        total, count = sum(units * many for (_, units), many in cards.items()), sum(cards.values())
        self.mean_card_units = total / count if count else 1.0
        self.pressure = _measure_pressure(mix, cards, self.mean_card_units)
        """By model: the demand, in cards, of requests that insist on some models, per card of those models."""
        self.host_per_card = _measure_host_per_card(mix, self.mean_card_units)
        """What the requests take of a host with each card; None if unknown."""
        self.piece_values: dict[int, PieceValues] = {}
        """Piece values by the units of a card."""

    def price_cards(self, cards: CardCounts) -> Iterator[None]:
        """Fill `piece_values` in steps of a few milliseconds, between which the caller may do other work."""
        for card_units in sorted({units for _, units in cards if units > 0}):
            step = -(-card_units // MAX_PIECES)
            asked: defaultdict[int, float] = defaultdict(float)
            for request, weight in self.mix.weights.items():
                if request.cards is not None:
                    asked[-(-request.cards.get_taken_units(card_units) // step)] += weight * request.cards.count
            capacity = card_units // step
            frequent = sorted(asked, key=lambda size: (-asked[size] * size, size))[:MAX_SIZES]
            demand = {size: asked[size] for size in frequent}
            prices: Mapping[int, float] = {}
            for better in price_in_steps(demand, capacity):
                prices = better
                yield
            self.piece_values[card_units] = PieceValues(value_pieces(prices, capacity), step)

    @cached_property
    def fragments(self) -> FragmentTables:
        """The fragment tables, computed when first needed: only one policy uses them."""
        return FragmentTables(self.mix.list_typical_requests(TYPICAL_COVERAGE), self.mean_card_units)


def build_forecast(mix: RequestMix, cards: CardCounts) -> Forecast:
    """The whole forecast at once: a few hundredths of a second."""
    forecast = Forecast(mix, cards)
    for _ in forecast.price_cards(cards):
        pass
    return forecast


def _measure_pressure(mix: RequestMix, cards: CardCounts, mean_card_units: float) -> Mapping[str, float]:
    by_model: defaultdict[str, int] = defaultdict(int)
    for (model, _), many in cards.items():
        by_model[model] += many
    pressure: defaultdict[str, float] = defaultdict(float)
    for request, weight in mix.weights.items():
        if request.cards is None or request.cards.models is None:
            continue
        allowed = [model for model in request.cards.models if model in by_model]
        if not allowed or len(allowed) == len(by_model):
            continue
        asked = weight * request.cards.count * request.cards.units / mean_card_units
        many = sum(by_model[model] for model in allowed)
        for model in allowed:
            pressure[model] += asked / many
    scale = _scale_to_cluster(mix, cards, mean_card_units)
    return {model: each * scale for model, each in pressure.items()}


def _scale_to_cluster(mix: RequestMix, cards: CardCounts, mean_card_units: float) -> float:
    """The factor that makes the whole mix as large as the cluster, as weights have no unit."""
    asked = sum(
        weight * request.cards.count * request.cards.units / mean_card_units
        for request, weight in mix.weights.items()
        if request.cards is not None
    )
    return sum(cards.values()) / asked if asked else 0.0


def _measure_host_per_card(mix: RequestMix, mean_card_units: float) -> HostResources | None:
    cpu_milli = memory_mib = cards = 0.0
    for request, weight in mix.weights.items():
        if request.cards is not None and request.host is not None:
            cpu_milli += weight * request.host.cpu_milli
            memory_mib += weight * request.host.memory_mib
            cards += weight * request.cards.count * request.cards.units / mean_card_units
    return HostResources(round(cpu_milli / cards), round(memory_mib / cards)) if cards else None
