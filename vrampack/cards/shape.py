"""What verdicts and policies can see of a node: its cards, sorted and without their names. Nodes that are alike share one shape.

Each new request needs a verdict on thousands of nodes, which have a few dozen fit classes between them: the numbers that
decide whether requests of one kind fit. They are measured by the same table of checks (`vrampack.cards.reasons`) by which
`vrampack.cards.fit` selects cards; a property test holds the two to the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from sys import maxsize
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from vrampack.cards.node import Card, Node
from vrampack.cards.payment import is_paid
from vrampack.cards.reasons import (
    UnfitReason,
    find_occasion,
    get_checks,
    get_request_form,
    is_plain_request,
)
from vrampack.cards.request import CardRequest
from vrampack.cards.rules import LONER

CardKey: TypeAlias = tuple[str, int, int, bool, tuple[object, ...]]
"""All that can be told apart of a card: model, units, used units, whether it is usable, and what rules and limits ask for."""
ShapeKey: TypeAlias = tuple[object, ...]
Units: TypeAlias = tuple[int, ...]
"""Of one card each, ascending."""


class OpenCard(NamedTuple):
    """One usable card that a request's models and rules allow. Policies cannot tell equal cards apart."""

    model: str
    units: int
    used_units: int

    @property
    def free_units(self) -> int:
        return max(0, self.units - self.used_units)


def open_card(card: Card) -> OpenCard:
    return OpenCard(card.model, card.units, card.used_units)


class Shape:
    """Compared by identity: `Shapes` builds one for all nodes that are alike. Its cards are those of any such node."""

    def __init__(self, node: Node, keys: Sequence[CardKey] | None = None) -> None:
        """`keys` are those of the node's placeable cards, where they are known already."""
        cards = node.placeable_cards
        keys = [_get_card_key(card) for card in cards] if keys is None else keys
        self.cards: tuple[Card, ...] = tuple(
            [cards[position] for position in sorted(range(len(cards)), key=keys.__getitem__)]
        )
        self.terms = node.terms
        sized = [card for card in self.cards if card.units]
        self.card_units: Units = tuple(sorted([card.units for card in sized]))
        self.hardware = Hardware(frozenset([card.model for card in sized]))
        self.tenants: frozenset[bytes] = frozenset().union(*[card.tenants for card in self.cards])
        rooms = [card.instances for card in sized if card.instances is not None]
        self.least_free_instances = min([room.free for room in rooms], default=maxsize)
        """A request that takes no more instances of a card finds them on every card."""
        usable = [card for card in sized if card.is_usable]
        self.free, self.empty = _list_free_units(usable)
        """Free units of usable cards, and the units of those that are empty."""
        self.free_if_usable, self.empty_if_usable = (
            (self.free, self.empty) if len(usable) == len(sized) else _list_free_units(sized)
        )
        """The same if every card were usable."""
        self.open_cards: tuple[OpenCard, ...] = tuple(map(open_card, usable))
        """The cards that are open to a request that names no models, where no rules are; sorted."""
        self.used_units = sum([card.used_units for card in self.cards])
        self.total_units = sum(self.card_units)

    def list_open_cards(self, request: CardRequest) -> tuple[OpenCard, ...]:
        """The usable cards of which only memory may be missing for the request, sorted."""
        has_instances = request.instances <= self.least_free_instances
        if request.models is None and request.rules is None and has_instances and not request.amounts:
            return self.open_cards
        return tuple(map(open_card, select_open_cards(self.cards, request)))


class Hardware:
    """The part of a shape that stays the same while pods come and go. Compared by identity, like a shape."""

    __slots__ = ("__weakref__", "models")

    def __init__(self, models: frozenset[str]) -> None:
        self.models = models


class Shapes:
    """All shapes in use, each built once."""

    def __init__(self) -> None:
        self._shapes: WeakValueDictionary[ShapeKey, Shape] = WeakValueDictionary()
        self._hardware: WeakValueDictionary[ShapeKey, Hardware] = WeakValueDictionary()

    def find_shape(self, node: Node) -> Shape:
        keys = [_get_card_key(card) for card in node.placeable_cards]
        key = node.terms, *sorted(keys)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(node, keys)
            hardware_key = (shape.terms, shape.card_units, shape.hardware.models)
            shape.hardware = self._hardware.setdefault(hardware_key, shape.hardware)
        return shape


def select_open_cards(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    """The usable cards of which only memory may be missing for the request."""
    checks = get_checks(
        "one card",
        None,
        is_plain=request.models is None,
        is_ruled=request.rules is not None,
        counts_instances=True,
        asks_amounts=bool(request.amounts),
    )
    for reason, check in checks:
        if check.compares is None and reason not in (UnfitReason.UUID, UnfitReason.NOT_VALID):
            cards = check.select_cards(cards, request)
    return cards


def get_request_kind(request: CardRequest) -> CardRequest:
    """The part of a request that decides with which numbers of a node its units are compared.

    On nodes that have none of the cards that it names, which these are makes no difference.
    """
    return replace(request, units=0, uuids=None if request.uuids is None else frozenset())


def get_new_tenants_kind(kind: CardRequest) -> CardRequest:
    """The kind for a tenant without pods: nodes without pods of the tenant cannot tell the two apart."""
    rules = kind.rules
    return replace(kind, rules=rules._replace(tenant=LONER)) if rules is not None and rules.tenant else kind


class FitClass:
    """Decides whether requests of one kind fit, on all shapes that have the same numbers. Compared by identity."""

    __slots__ = ("most_units", "numbers", "reasons")

    def __init__(self, reasons: tuple[UnfitReason, ...], numbers: tuple[int, ...]) -> None:
        self.reasons = reasons
        """Of the checks, in order."""
        self.numbers = numbers
        """The most units that a request may ask for and still pass each check, -1 if none passes; they descend."""
        self.most_units = numbers[-1]

    def find_obstacle(self, units: int) -> UnfitReason | None:
        """Why a request for so many units does not fit, None when it does: the answer of `vrampack.cards.fit`."""
        return None if self.most_units >= units else self.get_obstacle(units)

    def get_obstacle(self, units: int) -> UnfitReason:
        """The same for a request that does not fit."""
        # From the end, as most nodes that do not fit are full.
        numbers, at = self.numbers, len(self.numbers) - 1
        while at and numbers[at - 1] < units:
            at -= 1
        return self.reasons[at]


class FitClasses:
    """The fit class of each shape for requests of one kind."""

    def __init__(self, kind: CardRequest) -> None:
        self._kind = kind
        self._count = max(1, kind.count)
        """Simulated pods may ask for no card: a node with cards takes them."""
        self._by_hardware: dict[Hardware, FitClass] = {}
        """A class that shapes of this hardware have or had, unless more than memory decides about single cards."""
        self._variants: dict[Hardware, dict[Units, FitClass]] = {}
        """The classes of this hardware by what differs while pods come and go."""
        self._measured: dict[tuple[object, ...], FitClass] = {}

    def __len__(self) -> int:
        return len(self._measured) + sum(map(len, self._variants.values()))

    def keep_only(self, used: set[FitClass]) -> None:
        """Forget all other classes."""
        self._measured = {(each.reasons, *each.numbers): each for each in used}
        self._by_hardware.clear()
        self._variants.clear()

    def find_class(self, shape: Shape) -> FitClass:
        """Measured card by card only if more than memory decides about single cards, or the hardware is new."""
        if shape.least_free_instances < self._kind.instances:
            return self._measure_class(shape, counts_instances=True)
        hardware = shape.hardware
        variants = self._variants.get(hardware)
        if variants is None:
            return self._by_hardware.get(hardware) or self._find_new_class(shape)
        variant = self._get_variant(shape)
        found = variants.get(variant)
        if found is None:
            found = variants[variant] = self._build_variant(shape, variant)
        return found

    def _get_variant(self, shape: Shape) -> Units:
        """The last two numbers of its class; where cards are paid for, which of them are empty."""
        kind, count = self._kind, self._count
        if kind.payment is not None:
            return *shape.empty_if_usable, -1, *shape.empty
        free, usable = (shape.empty_if_usable, shape.empty) if kind.whole else (shape.free_if_usable, shape.free)
        return free[-count] if len(free) >= count else -1, usable[-count] if len(usable) >= count else -1

    def _build_variant(self, shape: Shape, variant: Units) -> FitClass:
        if self._kind.payment is not None:
            return self._measure_class(shape, counts_instances=False)
        like = self._by_hardware[shape.hardware]
        return FitClass(like.reasons, (*like.numbers[:-2], *variant))

    def _treats_cards_alike(self, hardware: Hardware) -> bool:
        """Whether memory alone decides about single cards."""
        models = self._kind.models
        return (
            self._kind.rules is None
            and not self._kind.amounts
            and (models is None or models >= hardware.models or models.isdisjoint(hardware.models))
        )

    def _find_new_class(self, shape: Shape) -> FitClass:
        measured, hardware = self._measure_class(shape, counts_instances=False), shape.hardware
        if self._treats_cards_alike(hardware):
            self._by_hardware[hardware] = measured
            if measured.numbers[-3] >= 0:
                self._variants[hardware] = {self._get_variant(shape): measured}
        return measured

    def _measure_class(self, shape: Shape, *, counts_instances: bool) -> FitClass:
        probe, count = self._kind, self._count
        checks = get_checks(
            get_request_form(probe, count),
            find_occasion(probe, shape.terms),
            is_plain=is_plain_request(probe),
            is_ruled=probe.rules is not None,
            counts_instances=counts_instances,
            asks_amounts=bool(probe.amounts),
        )
        cards: Sequence[Card] = shape.cards
        compared, numbers = None, []
        payment = probe.payment
        """If there is one, all requests of the kind ask for the same units: they all pass a check, or none."""
        for _, check in checks:
            if check.compares is None or payment is not None:
                cards = check.select_cards(cards, probe)
            else:
                compared = check.compares
            needed = 1 if check.needs_one_card else count
            if len(cards) < needed or (
                payment is not None and check.must_be_paid and not is_paid(cards, payment, count)
            ):
                numbers.append(-1)
            else:
                numbers.append(maxsize if compared is None else sorted(map(attrgetter(compared), cards))[-needed])
        reasons = tuple(reason for reason, _ in checks)
        found = self._measured.get((reasons, *numbers))
        if found is None:
            found = self._measured[reasons, *numbers] = FitClass(reasons, tuple(numbers))
        return found


def _get_card_key(card: Card) -> CardKey:
    marks: tuple[object, ...] = ()
    if card.is_ruled or card.instances is not None or card.offered or card.taken:
        room = card.instances
        marks = (
            -1 if card.free_pods is None else card.free_pods,
            -1 if card.reserve is None else card.reserve,
            (-1, False) if room is None else (room.free, room.are_per_container),
            card.offered,
            card.taken,
            *sorted(card.tenants),
        )
    return card.model, card.units, card.used_units, card.healthy and not card.cordoned, marks


def _list_free_units(cards: Sequence[Card]) -> tuple[Units, Units]:
    """Free units of each card, and the units of the empty cards."""
    free = [card.units - card.used_units if card.used_units < card.units else 0 for card in cards]
    empty = [card.units for card in cards if not card.used_units]
    return tuple(sorted(free)), tuple(sorted(empty))
