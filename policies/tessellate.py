"""Cuts cards so that other requests can use the rest, and avoids free cards on hosts without free CPU or memory.

This project's own policy. The cost of a place, in cards, is the sum of

* waste: the worth that the card loses by the cut (`policies.mix.cutting_stock`) beyond the size of the request, blended with
  what stays free on the card, because the mix never stays quite the same;
* opening: a price for a card that is not in use, so that cards stay whole while used ones are enough;
* pressure: a price for cards of models on which other requests insist;
* starvation: cards for which the host has no CPU or memory left.

Costs are rounded to a coarse step. A forecast cannot tell places within one step apart, so there the tightest card wins, then
the fuller node, then the fuller host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from math import floor

from pydantic import Field

from policies.open_cards import take_least
from policies.outlook import Outlook, PolicyWeights
from policies.policy import FittingView, PolicyTraits, Rating, ScoreTerm, ScoreTerms
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import OpenCard, open_card


class TessellateWeights(PolicyWeights):
    """Chosen on the openb traces and the mixes of the GiB benchmark; seeds 2001 to 2010 are held out. See docs/packing.md."""

    # Waste is not a weight: the others are priced relative to it.

    opening: float = Field(default=1.18, ge=0, le=100)  # between 1.1 and 1.25 it parts two kinds of waste
    """Price, in cards, of using an empty card. Raise it to keep more cards empty, at the cost of more leftovers that no pod can
    use; lower it if pods should rather have a card of their own."""

    leftover_share: float = Field(default=0.065, ge=0, le=1)
    """The share of the waste that is simply what stays free on the card; the rest is what usual requests lose by the cut. Raise
    it if the mix of requests changes often."""

    pressure: float = Field(default=3.0, ge=0, le=100)
    """Price of memory of a model that other pods insist on. Raise it if those pods wait while others fill their cards."""

    starvation: float = Field(default=4.0, ge=0, le=100)
    """Price of a free card for which the host keeps too little CPU or memory. Set 0 if hosts always have enough."""


TRAITS = PolicyTraits(looks_ahead=True, reads_hosts=True, weights=TessellateWeights)

OWN_WEIGHTS = TessellateWeights()
WASTE = 8.0
HOST_SHARE = 0.75
"""The share of what requests usually take of a host per card that must stay available for each free card."""
NO_ROOM = 1000.0
"""For a host that seems to have less than the pod asks for: kube-scheduler will not take it, so it comes last."""
STEP = 0.1
# The three parts of the tie-break: together less than a step.
CARD_TIE = 0.6
NODE_TIE = 0.2
HOST_TIE = 0.2
NO_HOST_RESOURCES = HostResources(0, 0)
HALF_NODE_CARDS = 4.0
HALF_HOST_CPU_MILLI = 64_000.0
"""Free cards and free CPU at which the tie-breaks of node and host reach half of their range."""


def rate(views: Iterable[FittingView], request: CardRequest, outlook: Outlook) -> Iterator[Rating]:
    """The cheapest cards; between nodes, the one with the least cost."""
    prices = _Prices(request, outlook)
    return (prices.rate_node(view) for view in views)


def list_terms(view: FittingView, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook) -> ScoreTerms:
    """The costs in steps, without those that are 0, and the tie-break within a step."""
    return _Prices(request, outlook).list_terms(view, tuple(map(open_card, chosen)))


def bound_scores(views: Iterable[FittingView], request: CardRequest, outlook: Outlook) -> Iterator[float]:
    """Bounds by the best card and the node. A host can only raise a score if its cards starve already and the request takes some."""
    prices = _Prices(request, outlook)
    bound_card = cache(prices.bound_card)  # many nodes have such cards
    half_node_units = outlook.forecast.mean_card_units * HALF_NODE_CARDS
    for view in views:
        free_units = view.shape.total_units - view.shape.used_units
        left = max(0.0, free_units - request.units) / half_node_units
        bound = max(map(bound_card, view.fitting)) - NODE_TIE * left / (1.0 + left)
        yield bound + prices.bound_host(view.host, free_units)


class _Prices(dict[OpenCard, float]):
    """The costs of cards for one request, and the numbers that are the same for every node. Many nodes have equal cards."""

    def __init__(self, request: CardRequest, outlook: Outlook) -> None:
        super().__init__()
        forecast = outlook.forecast
        self._request = request
        self._mean = forecast.mean_card_units
        self._piece_values = forecast.piece_values
        self._pressure = forecast.pressure if request.models is None else {}
        self._per_card = forecast.host_per_card
        self._cpu_milli, self._memory_mib = outlook.request_host or NO_HOST_RESOURCES
        weights = outlook.weights if isinstance(outlook.weights, TessellateWeights) else OWN_WEIGHTS
        self._opening, self._leftover_share = weights.opening, weights.leftover_share
        self._pressure_price, self._starvation = weights.pressure, weights.starvation

    def rate_node(self, view: FittingView) -> Rating:
        """The score if the request takes the cheapest cards."""
        chosen = take_least(view.fitting, self._request, self.__getitem__)
        return Rating(self._score_node(view, chosen), chosen)

    def _score_node(self, view: FittingView, chosen: Sequence[OpenCard]) -> float:
        """The score of a node if the request takes these cards."""
        request, mean = self._request, self._mean
        free_units = view.shape.total_units - view.shape.used_units
        cost = left = taken_units = 0.0
        for card in chosen:
            _, units, used = card
            taken = units if request.whole else request.units
            cost += self[card]
            taken_units += taken
            left += (units - used - taken) / units
        node_left = max(0.0, free_units - taken_units) / mean / HALF_NODE_CARDS
        tie = CARD_TIE * left / max(1, len(chosen)) + NODE_TIE * node_left / (1.0 + node_left)
        if view.host is not None:
            host_cost, host_tie = self._rate_host(view.host, free_units / mean, taken_units / mean)
            cost += host_cost
            tie += host_tie
        return floor(-cost / STEP + 1e-9) - tie

    def list_terms(self, view: FittingView, chosen: Sequence[OpenCard]) -> ScoreTerms:
        """The terms that add up to the score."""
        request, mean, host = self._request, self._mean, view.host
        free_units = view.shape.total_units - view.shape.used_units
        prices = [self._price_card(card) for card in chosen]
        costs = {
            "memory left unusable": sum([waste for waste, _, _ in prices], 0.0),
            "opening another card": sum([opening for _, opening, _ in prices], 0.0),
            "model that other pods need": sum([pressure for _, _, pressure in prices], 0.0),
        }
        taken_units = sum([request.get_taken_units(card.units) for card in chosen])
        if host is not None:
            costs["CPU and memory of the host"] = self._rate_host(host, free_units / mean, taken_units / mean)[0]
        terms = [ScoreTerm(what, -cost / STEP) for what, cost in costs.items() if cost]
        score = self._score_node(view, chosen)
        return *terms, ScoreTerm("tie-breaks and rounding", score - sum(each.value for each in terms))

    def bound_card(self, card: OpenCard) -> float:
        """The best score of a node on which the request takes this card, without the node's tie-break."""
        (_, units, used), taken = card, self._request.units
        return floor(-self[card] / STEP + 1e-6) - CARD_TIE * (units - used - taken) / units + 1e-9

    def bound_host(self, host: HostResources | None, free_units: int) -> float:
        """The most that the host of a node with `free_units` free adds to its score."""
        per_card = self._per_card
        if host is None or per_card is None:
            return 0.0
        needed = HOST_SHARE * free_units / self._mean
        if host.cpu_milli >= needed * per_card.cpu_milli and host.memory_mib >= needed * per_card.memory_mib:
            return 0.0
        return self._starvation * self._request.units / self._mean / STEP + 1.0

    def __missing__(self, card: OpenCard) -> float:
        waste, opening, pressure = self._price_card(card)
        cost = self[card] = waste + opening + pressure
        return cost

    def _price_card(self, card: OpenCard) -> tuple[float, float, float]:
        """The cost of taking this card: waste, opening and pressure."""
        request, mean, (model, units, used) = self._request, self._mean, card
        free, taken = max(0, units - used), units if request.whole else request.units
        values = self._piece_values.get(units)
        lost = taken if values is None else units * values.value_cut(free, taken)
        share = self._leftover_share
        waste = WASTE * ((1.0 - share) * (lost - taken) + share * (free - taken)) / mean
        opening = self._opening if not used and taken < units else 0.0
        pressure = self._pressure.get(model)
        return waste, opening, 0.0 if pressure is None else self._pressure_price * pressure * taken / mean

    def _rate_host(self, host: HostResources, free_cards: float, taken_cards: float) -> tuple[float, float]:
        """The cost, in cards, of what the request takes of the host's CPU and memory, and the tie-break by what it leaves."""
        cpu_milli, memory_mib = host
        cpu_after, memory_after = cpu_milli - self._cpu_milli, memory_mib - self._memory_mib
        cost = 0.0
        if cpu_after < 0 or memory_after < 0:
            cost, cpu_after, memory_after = NO_ROOM, max(0, cpu_after), max(0, memory_after)
        per_card = self._per_card
        if per_card is not None:
            starved_after = _count_starved_cards(free_cards - taken_cards, cpu_after, memory_after, per_card)
            cost += self._starvation * (
                starved_after - _count_starved_cards(free_cards, cpu_milli, memory_mib, per_card)
            )
        host_left = cpu_after / HALF_HOST_CPU_MILLI
        return cost, HOST_TIE * host_left / (1.0 + host_left)


def _count_starved_cards(free_cards: float, cpu_milli: int, memory_mib: int, per_card: HostResources) -> float:
    """How many free cards have too little of their host left, by its scarcer resource."""
    served, (cpu_per_card, memory_per_card) = free_cards, per_card
    if cpu_per_card:
        served = cpu_milli / (HOST_SHARE * cpu_per_card)
    if memory_per_card:
        served = min(served, memory_mib / (HOST_SHARE * memory_per_card))
    return free_cards - served if free_cards > served else 0.0
