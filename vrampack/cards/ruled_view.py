"""A node's cards, as sorted numbers, for requests under rules; `vrampack.cards.node_summary` is the same without rules.

Rules are narrowed to what the node can tell apart, so a node has a view for each of its tenants and one for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from vrampack.cards.node import Card, Node
from vrampack.cards.request import CardRequest, RequestRules

ViewKey: TypeAlias = tuple[frozenset[str] | None, frozenset[str] | None, bytes | None, frozenset[int]]
"""The part of a request that the node can tell apart: models it asks for, models it may use, tenant, reserves."""
Units: TypeAlias = tuple[int, ...]
"""Ascending."""
RuledNumbers: TypeAlias = tuple[int, int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class RuledView:
    """The units of the cards that pass one check after another: free units, and the units of empty cards."""

    cards: tuple[Card, ...]
    """The cards that pass every rule."""
    allowed: Units
    permitted: Units
    unreserved: Units
    free: tuple[Units, Units, Units, Units]
    """Free units of the usable cards, of those that take one more pod, of those that may be shared, of all unreserved ones."""
    empty: tuple[Units, Units, Units, Units]
    """The same stages for cards without pods: their units."""
    _numbers: dict[tuple[int, bool], RuledNumbers] = field(default_factory=dict, compare=False)

    def get_numbers(self, count: int, *, whole: bool) -> RuledNumbers:
        """The first numbers of an `EquivalenceClass`, for requests for `count` cards: four of free units, then those of cards."""
        known = self._numbers.get((count, whole))
        if known is None:
            lists = (*(self.empty if whole else self.free), self.unreserved, self.permitted, self.allowed)
            a, b, c, d, e, f, g = [units[-count] if len(units) >= count else -1 for units in lists]
            self._numbers[count, whole] = known = (a, b, c, d, e, f, g)
        return known


class RuledCards:
    """The views of one node, each built when a request first asks for it."""

    __slots__ = ("_models", "_node", "_reserves", "_tenants", "_views")

    def __init__(self, node: Node, models: frozenset[str]) -> None:
        self._node = node
        self._models = models
        self._views: dict[ViewKey, RuledView] = {}
        cards = node.placeable_cards
        self._tenants: frozenset[bytes] = frozenset().union(*[card.tenants for card in cards])
        self._reserves = frozenset([card.reserve for card in cards if card.reserve is not None])

    def has_tenant(self, tenant: bytes) -> bool:
        return tenant in self._tenants

    def find_key(self, models: frozenset[str] | None, rules: RequestRules) -> ViewKey:
        """The part of these models and rules that the node can tell apart."""
        tenant = rules.tenant if self._tenants else None
        return (
            self._narrow(models),
            self._narrow(rules.models),
            tenant if tenant is None or tenant in self._tenants else b"",
            rules.reserves & self._reserves,
        )

    def find_view(self, key: ViewKey) -> RuledView:
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _build_view(self._node.placeable_cards, key)
        return view

    def _narrow(self, models: frozenset[str] | None) -> frozenset[str] | None:
        return None if models is None or models >= self._models else models & self._models


def list_permitted_cards(node: Node, request: CardRequest) -> Sequence[Card]:
    """The cards that the request's models and rules allow, whatever they hold, usable or not."""
    cards = [card for card in node.placeable_cards if card.units]
    if request.rules is None:
        return [card for card in cards if request.models is None or card.model in request.models]
    views = RuledCards(node, frozenset([card.model for card in cards]))
    return views.find_view(views.find_key(request.models, request.rules)).cards


def _build_view(cards: Iterable[Card], key: ViewKey) -> RuledView:
    models, permitted_models, tenant, reserves = key
    own = frozenset((tenant,) if tenant else ())
    allowed = [card for card in cards if card.units and (models is None or card.model in models)]
    permitted = [card for card in allowed if permitted_models is None or card.model in permitted_models]
    unreserved = [card for card in permitted if card.reserve is None or card.reserve in reserves]
    shareable = unreserved if tenant is None else [card for card in unreserved if card.tenants <= own]
    uncrowded = [card for card in shareable if card.free_pods is None or card.free_pods > 0]
    usable = [card for card in uncrowded if card.is_usable]
    stages = (unreserved, shareable, uncrowded, usable)
    a, b, c, d = _sort_stages(stages, lambda card: card.free_units)
    e, f, g, h = _sort_stages([[card for card in stage if not card.used_units] for stage in stages], _get_units)
    all_allowed, all_permitted, all_unreserved = _sort_stages((allowed, permitted, unreserved), _get_units)
    return RuledView(
        cards=tuple(uncrowded),
        allowed=all_allowed,
        permitted=all_permitted,
        unreserved=all_unreserved,
        free=(d, c, b, a),
        empty=(h, g, f, e),
    )


def _get_units(card: Card) -> int:
    return card.units


def _sort_stages(stages: Iterable[Sequence[Card]], get_units: Callable[[Card], int]) -> list[Units]:
    """The sorted units of each stage, each a subset of the one before: most stages are equal, and are sorted once."""
    sorted_units: list[Units] = []
    for cards in stages:
        is_same = sorted_units and len(sorted_units[-1]) == len(cards)
        sorted_units.append(sorted_units[-1] if is_same else tuple(sorted(map(get_units, cards))))
    return sorted_units
