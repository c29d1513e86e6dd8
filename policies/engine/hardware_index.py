"""The cards of the cluster and their nodes, which decide which parts of a request can make a difference.

Pods may ask for anything: cards and models that no node has, sizes that no card has. Requests that differ only in such parts
get equal verdicts everywhere, so they are narrowed to one before anything is cached for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from policies.engine.host_rooms import HostRooms
from policies.mix.forecast import CardCounts
from policies.mix.request_mix import MixedRequest
from vrampack.cards.amounts import Amounts, find_largest
from vrampack.cards.node import Card, Node
from vrampack.cards.request import CardPayment, CardRequest, PodRequest

Key = TypeVar("Key")
CardHardware = tuple[str | None, str, int, Amounts]
"""Uuid, model, units, and what it offers besides."""
_NodeHardware = tuple[tuple[CardHardware, ...], int]
"""Its cards, and the most instances of a card where containers have some of their own."""
NO_HARDWARE: _NodeHardware = (), 0

_get_hardware: Callable[[Card], CardHardware] = attrgetter("uuid", "model", "units", "offered")


class HardwareIndex:
    """Is fed every node that changes; most changes leave the hardware as it is."""

    def __init__(self) -> None:
        self._hardware: dict[str, _NodeHardware] = {}
        self._names_by_uuid: dict[str, tuple[str, ...]] = {}
        """Nodes by uuid, nearly always one: two nodes can only report the same card by mistake."""
        self._cards: Counter[tuple[str, int]] = Counter()
        """How many cards there are by model and units."""
        self._card_counts: Counter[int] = Counter()
        """How many nodes have this many cards."""
        self._instance_counts: Counter[int] = Counter()
        """How many nodes have a card with so many instances, where containers have some of their own."""
        self._offers: Counter[tuple[str, int]] = Counter()
        """How many cards offer so much on an axis."""

    def put_node(self, name: str, node: Node | None) -> None:
        """Replace what is known of the node; None removes it."""
        hardware, known = _read_hardware(node), self._hardware.get(name, NO_HARDWARE)
        if hardware != known:
            self._count(name, known, -1)
            self._count(name, hardware, 1)
            self._hardware[name] = hardware
        if node is None:
            self._hardware.pop(name, None)

    def copy(self) -> HardwareIndex:
        """A copy that does not change."""
        copy = HardwareIndex()
        for name, counts in vars(self).items():
            setattr(copy, name, counts.copy())
        return copy

    def narrow_request(self, request: CardRequest) -> CardRequest:
        """The one request that stands for all that no node can tell apart: equal verdicts and scores on every node."""
        units = min(request.units, self._find_largest_units() + 1)
        count = min(request.count, max(self._card_counts, default=0) + 1)
        if not request.is_valid:
            return CardRequest(units, count, is_valid=False)
        models, uuids = request.models, request.uuids
        if models is not None:
            known = {model for model, _ in self._cards}
            models = None if models >= known else models & known
        narrowed = replace(
            request,
            units=units,
            count=count,
            payment=None if request.payment is None else self._narrow_payment(request.payment, count),
            models=models,
            uuids=None if uuids is None else frozenset(uuids & self._names_by_uuid.keys()),
            instances=min(request.instances, max(self._instance_counts, default=0) + 1),
            amounts=self._narrow_amounts(request.amounts),
        )
        return request if narrowed == request else narrowed

    def _narrow_amounts(self, amounts: Amounts) -> Amounts:
        """Amounts that no card offers are one more than any card does."""
        most = find_largest((offer,) for offer in self._offers) if amounts else ()
        return tuple((axis, min(amount, dict(most).get(axis, 0) + 1)) for axis, amount in amounts)

    def _narrow_payment(self, payment: CardPayment, count: int) -> CardPayment:
        """The one payment that stands for all that pay for the same cards."""
        sizes = sorted({units for _, units in self._cards if units >= payment.least_units})
        if not sizes or payment.most_units < count * sizes[0]:
            return CardPayment(sizes[0] if sizes else self._find_largest_units() + 1, 0)
        most = min(payment.most_units, count * sizes[-1])
        if count == 1:
            most = max(units for units in sizes if units <= most)
        return CardPayment(sizes[0], most)

    @property
    def counts_instances(self) -> bool:
        """Whether containers have instances of their own on some node."""
        return bool(self._instance_counts)

    def build_mixed_request(self, pod_request: PodRequest, hosts: HostRooms) -> MixedRequest:
        """The request that the pod counts as in a mix."""
        request = self.narrow_request(pod_request.card_request)
        units = request.least_card_units  # of a whole card that is paid for: the size of the smallest that it pays for
        cards = CardRequest(units, request.count, whole=request.whole, models=request.models)
        return MixedRequest(cards, None if pod_request.host is None else hosts.round_up(pod_request.host))

    def count_cards(self) -> CardCounts:
        """How many cards there are of each model and number of units."""
        return dict(self._cards)

    def list_nodes_with(self, uuids: Iterable[str]) -> set[str]:
        """The nodes that have any of these cards."""
        return {name for uuid in uuids for name in self._names_by_uuid.get(uuid, ())}

    def _find_largest_units(self) -> int:
        return max([units for _, units in self._cards], default=0)

    def _count(self, name: str, hardware: _NodeHardware, by: int) -> None:
        cards, most_instances = hardware
        if most_instances:
            _add(self._instance_counts, most_instances, by)
        if not cards:
            return
        for uuid, model, units, offered in cards:
            for offer in offered:
                _add(self._offers, offer, by)
            _add(self._cards, (model, units), by)
            if uuid is not None:
                names = [each for each in self._names_by_uuid.pop(uuid, ()) if each != name]
                if by > 0:
                    names.append(name)
                if names:
                    self._names_by_uuid[uuid] = tuple(names)
        _add(self._card_counts, len(cards), by)


def _read_hardware(node: Node | None) -> _NodeHardware:
    if node is None:
        return NO_HARDWARE
    cards = node.placeable_cards
    rooms = [card.instances for card in cards] if node.counts_instances else []
    most_instances = max([room.most for room in rooms if room is not None and room.are_per_container], default=0)
    return tuple(map(_get_hardware, cards)), most_instances


def _add(counter: Counter[Key], key: Key, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]
