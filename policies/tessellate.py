"""Cuts cards so that what is left can still be sold, and keeps cards whose hosts are full out of no one's reach.

The policy of this project. The cost of a place, in cards, is the sum of

* waste: what the cut takes of the card's worth (`policies.mix.cutting_stock`) beyond the size of the request, blended with
  what stays free on the card, for the mix is never quite what it was;
* opening: a price for a card that is not in use, so that cards stay whole while the used ones will do;
* pressure: a price for cards of models on which other requests insist;
* starvation: cards for which the host has no CPU or memory left.

Costs are rounded to a coarse step. Places of one step are alike to within what a forecast can know, and there the tightest
card wins, then the fuller node, then the fuller host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import floor

from policies.mix.forecast import Forecast
from policies.open_cards import OpenCard, list_distinct_fitting_cards, list_open_cards, open_card, pick_cards
from policies.outlook import Outlook
from policies.policy import ScoredCards
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Card, Node
from vrampack.cards.node_summary import NodeSummary
from vrampack.cards.request import CardRequest

LOOKS_AHEAD = True
COUNTS_LEFTOVERS = False

# Weights were chosen on the openb traces and the mixes of the GiB benchmark, never on seeds 2001 to 2010; see docs/packing.md.
WASTE = 8.0
LEFTOVER_SHARE = 0.065
"""Of the waste: how much of it is what stays free on the card, whatever that is worth."""
OPENING = 1.18
"""Between 1.1 and 1.25 a card is opened before the second kind of waste is accepted and after the first."""
PRESSURE = 3.0
STARVATION = 4.0
HOST_SHARE = 0.75
"""Of what requests take of a host with each card: so much must stay for a card that is free."""
NO_ROOM = 1000.0
"""For a host that has less than the pod asks for, as far as is known: kube-scheduler will not take it, so it comes last."""
STEP = 0.1
# The three parts of the tie: together less than a step.
CARD_TIE = 0.6
NODE_TIE = 0.2
HOST_TIE = 0.2
HALF_NODE_CARDS = 4.0
HALF_HOST_CPU_MILLI = 64_000.0
"""Where the ties of node and host reach half of their range."""


def choose_cards(node: Node, fitting: tuple[Card, ...], request: CardRequest, outlook: Outlook) -> ScoredCards:
    """The cheapest cards; between nodes, the least cost."""
    free_units = node.total_units - node.used_units
    score, chosen = _rate_node(node.name, free_units, sorted(map(open_card, fitting)), request, outlook)
    return ScoredCards(score, pick_cards(fitting, chosen))


def score_nodes(
    summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, outlook: Outlook
) -> Iterator[tuple[str, float]]:
    """The scores of `choose_cards`, from the summaries of nodes that fit."""
    for name, summary in summaries:
        fitting: Collection[OpenCard] = ()
        if request.count == 1:
            fitting = list_distinct_fitting_cards(summary, request)
        elif request.count:
            fitting = [card for card in list_open_cards(summary, request) if card.has_room_for(request)]
        yield name, _rate_node(name, summary.total_units - summary.used_units, fitting, request, outlook)[0]


def _rate_node(
    name: str, free_units: int, fitting: Collection[OpenCard], request: CardRequest, outlook: Outlook
) -> tuple[float, list[OpenCard]]:
    """The score, and the cards that are taken."""
    forecast = outlook.forecast
    costs = {card: _cost_card(card, request, forecast) for card in fitting}
    if request.count == 1:
        chosen = [min(zip(costs.values(), costs, strict=True))[1]]
    else:
        chosen = sorted(fitting, key=lambda card: (costs[card], card))[: request.count]
    cost = left = taken_units = 0.0
    for card in chosen:
        taken = card.units if request.whole else request.units
        cost += costs[card]
        taken_units += taken
        left += (card.units - card.used_units - taken) / card.units
    mean = forecast.mean_card_units
    host_cost, host_tie = _rate_host(name, free_units / mean, taken_units / mean, outlook)
    node_left = (free_units - taken_units) / mean / HALF_NODE_CARDS
    tie = CARD_TIE * left / max(1, len(chosen)) + NODE_TIE * node_left / (1.0 + node_left) + host_tie
    return floor(-(cost + host_cost) / STEP + 1e-9) - tie, chosen


def _rate_host(name: str, free_cards: float, taken_cards: float, outlook: Outlook) -> tuple[float, float]:
    """The cost, in cards, of what the request takes of the host's CPU and memory, and the tie of what it leaves."""
    host, request_host, per_card = outlook.hosts.get(name), outlook.request_host, outlook.forecast.host_per_card
    if host is None:
        return 0.0, 0.0
    cost = NO_ROOM if request_host is not None and _lacks_room(host, request_host) else 0.0
    host_after = _subtract(host, request_host)
    if per_card is not None:
        starved_after = _count_starved_cards(free_cards - taken_cards, host_after, per_card)
        cost += STARVATION * (starved_after - _count_starved_cards(free_cards, host, per_card))
    host_left = host_after.cpu_milli / HALF_HOST_CPU_MILLI
    return cost, HOST_TIE * host_left / (1.0 + host_left)


def _cost_card(card: OpenCard, request: CardRequest, forecast: Forecast) -> float:
    units, used = card.units, card.used_units
    mean, taken, free = forecast.mean_card_units, units if request.whole else request.units, max(0, units - used)
    values = forecast.piece_values.get(units)
    lost: float = taken
    if values is not None:
        lost = units * (values.value_units(free) - values.value_units(free - taken))
    cost = WASTE * ((1.0 - LEFTOVER_SHARE) * (lost - taken) + LEFTOVER_SHARE * (free - taken)) / mean
    if not used and taken < units:
        cost += OPENING
    if request.models is None:
        cost += PRESSURE * forecast.pressure.get(card.model, 0.0) * taken / mean
    return cost


def _lacks_room(host: HostResources, request: HostResources) -> bool:
    return host.cpu_milli < request.cpu_milli or host.memory_mib < request.memory_mib


def _subtract(host: HostResources, request: HostResources | None) -> HostResources:
    if request is None:
        return host
    cpu_milli, memory_mib = host.cpu_milli - request.cpu_milli, host.memory_mib - request.memory_mib
    return HostResources(max(0, cpu_milli), max(0, memory_mib))


def _count_starved_cards(free_cards: float, host: HostResources, per_card: HostResources) -> float:
    """Free cards for which the host has too little left, by whatever it has least of."""
    served = free_cards
    if per_card.cpu_milli:
        served = host.cpu_milli / (HOST_SHARE * per_card.cpu_milli)
    if per_card.memory_mib:
        by_memory = host.memory_mib / (HOST_SHARE * per_card.memory_mib)
        served = min(served, by_memory)
    return free_cards - served if free_cards > served else 0.0
