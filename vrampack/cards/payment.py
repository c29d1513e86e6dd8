"""Whole cards are paid for: a pod gets those whose units it asks for, so quotas, totals and preemption count what it holds.

The cards of a request have at most its units together, and each at least 15/16 of its even part: cards of one model
differ a little in the memory that their drivers leave. 640 units for 8 cards pay for 7 of 80 and one of 79.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.cards.request import CardPayment, CardRequest, PodRequest

LEAST_SIXTEENTHS = 15
"""Of the even part: what each card has at least."""
MAX_LISTED = 8
"""Models that an event names: their names have up to 96 characters, and an event has 1,000."""


class SizedCard(Protocol):
    """A card of which the units and the model are known."""

    @property
    def model(self) -> str: ...

    @property
    def units(self) -> int: ...


_Card = TypeVar("_Card", bound=SizedCard)


def compute_payment(asked_units: int, count: int) -> CardPayment:
    """What so many units, all cards together, pay for."""
    return CardPayment(-(-LEAST_SIXTEENTHS * asked_units // (16 * count)), asked_units)


def narrow_to_one_card(request: CardRequest) -> CardRequest:
    """The request, with what it pays at most for one of its cards if the others are as small as they may be."""
    payment = request.payment
    if payment is None or request.count == 1:
        return request
    others = (request.count - 1) * payment.least_units
    return replace(request, payment=payment._replace(most_units=payment.most_units - others))


def is_paid(cards: Iterable[SizedCard], payment: CardPayment, count: int) -> bool:
    """Whether `count` of the cards, of which there are as many, are paid for. The cards are large enough."""
    return sum(sorted([card.units for card in cards])[:count]) <= payment.most_units


def drop_unpaid_cards(cards: Sequence[_Card], payment: CardPayment, count: int) -> Sequence[_Card]:
    """Cards of which any `count` are paid for: without the largest, as long as those would exceed what is paid."""
    by_size = sorted(cards, key=lambda card: (card.units, card.model))
    while len(by_size) >= count and sum([card.units for card in by_size[-count:]]) > payment.most_units:
        by_size.pop()
    kept = set(map(id, by_size))
    return cards if len(by_size) == len(cards) else [card for card in cards if id(card) in kept]


def choose_paid_cards(cards: Sequence[_Card], payment: CardPayment, count: int) -> Sequence[_Card]:
    """Those that a request may take: any `count` are paid for, and smaller ones are left to requests that pay for less."""
    paid = drop_unpaid_cards(cards, payment, count)
    if len(paid) <= count:
        return paid
    least = sorted([card.units for card in paid])[-count] if count else 0
    return [card for card in paid if card.units >= least]


def list_payable_units(units: Iterable[int], count: int) -> list[int]:
    """What requests for `count` whole cards may ask for to get some of these, by their units: the sum of each choice of alike ones."""
    by_size = sorted(units)
    choices = [by_size[at : at + count] for at in range(len(by_size) - count + 1)]
    return [sum(each) for each in choices if 16 * count * each[0] >= LEAST_SIXTEENTHS * sum(each)]


def describe_unpaid(cards: Iterable[tuple[str, int]], pod_request: PodRequest) -> str:
    """What the pod asks for, and what a card costs, by the model and units of all cards of the cluster."""
    request = pod_request.card_request
    permitted = [request.models, None if request.rules is None else request.rules.models]
    sizes: dict[str, set[int]] = {}
    for model, units in cards:
        if units and all(models is None or model in models for models in permitted):
            sizes.setdefault(model, set()).add(units)
    prices = [f"{model or 'unknown model'} {' or '.join(map(str, sorted(sizes[model])))}" for model in sorted(sizes)]
    wanted, each = ("a whole card", "") if request.count == 1 else (f"{request.count} whole cards", ", each")
    shown = ", ".join(prices[:MAX_LISTED]) + (
        f" and {len(prices) - MAX_LISTED} more" if len(prices) > MAX_LISTED else ""
    )
    asked = "1 unit" if pod_request.asked_units == 1 else f"{pod_request.asked_units} units"
    return f"it asks for {asked} for {wanted}; ask for all of their units{each}: {shown}"


def find_unpaid_use(pods: Iterable[Pod]) -> str:
    """A bound pod for which whole cards are better not paid for, as a clause; empty if there is none.

    It has a record of gpushare or ACK, where a whole card costs what a pod asks for, or holds more units than it asks for.
    """
    for pod in sorted((each for each in pods if each.holds_memory), key=lambda each: (each.namespace, each.name)):
        record = pod.record
        if not isinstance(record, Record):
            continue
        if not record.is_ours:
            return f"pod {pod} has a record of {record.generation}"
        held = sum(share.units for share in record.shares if share.whole)
        if pod.request is not None and held > pod.request.asked_units:
            return f"pod {pod} holds {held} units and asks for {pod.request.asked_units}"
    return ""
