"""A node's cards as sorted numbers: enough to decide whether a request fits, and why not, without its cards.

Each new request needs a verdict on thousands of nodes. For one node, one element of a sorted tuple gives the verdict
that `vrampack.cards.fit` reaches card by card; a property test holds the two to the same answers. Only a request that
names cards must go through the cards, and only on the nodes that have them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from sys import maxsize
from typing import NamedTuple

from vrampack.cards.node import Card, Node
from vrampack.cards.reasons import RequestForm, UnfitReason, list_checks
from vrampack.cards.request import CardRequest, RequestRules
from vrampack.cards.ruled_view import RuledCards, ViewKey


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """What a request that names no cards needs to know about a node. Built by `summarize_node` and `select_view`."""

    card_units: tuple[int, ...]
    """Units of every card that has any, ascending; empty if the cards cannot be trusted."""
    allowed_card_units: tuple[int, ...]
    """The same for the cards of the selected models, to which all fields below refer except the node's sums."""
    free_units: tuple[int, ...]
    """Free units of usable cards, ascending."""
    empty_card_units: tuple[int, ...]
    """Units of usable cards that no pod holds, ascending."""
    free_units_if_usable: tuple[int, ...]
    """Like `free_units`, for all cards: what would be free if every card were usable."""
    empty_card_units_if_usable: tuple[int, ...]
    used_units: int
    """Of the whole node, not only of selected models."""
    total_units: int
    """Of the whole node, not only of selected models."""
    usable_cards: tuple[tuple[int, int], ...]
    """Units and used units of every usable card, by index."""
    is_open: bool
    """Whether this version knows how containers get cards there."""
    needs_references: bool
    models: frozenset[str]
    """The models of the cards that have units."""
    node: Node = field(compare=False, repr=False)
    by_model: Mapping[str, NodeSummary] | None = None
    """For a node with several models, its summary for each."""
    ruled_node: RuledNode | None = field(default=None, compare=False, repr=False)
    """The node for requests under rules; built when the first of them asks."""

    def get_ruled_node(self) -> RuledNode:
        ruled_node = self.ruled_node
        if ruled_node is None:
            ruled_node = RuledNode(self)
            object.__setattr__(self, "ruled_node", ruled_node)  # a cache: the summary's value stays the same
        return ruled_node


class RuledNode:
    """The views of one node, and the summaries of the cards that rules leave, as policies score them."""

    __slots__ = ("_summaries", "_summary", "views")

    def __init__(self, summary: NodeSummary) -> None:
        self.views = RuledCards(summary.node, summary.models)
        self._summary = summary
        self._summaries: dict[ViewKey, NodeSummary] = {}

    def select_summary(self, models: frozenset[str] | None, rules: RequestRules) -> NodeSummary:
        key = self.views.find_key(models, rules)
        known = self._summaries.get(key)
        if known is None:
            cards = self.views.find_view(key).cards
            known = self._summaries[key] = _summarize_models(self._summary.node, self._summary.card_units, cards)
        return known


def summarize_node(node: Node) -> NodeSummary:
    """The summary of a node for requests that allow any model."""
    return _summarize_models(node, (), [card for card in node.placeable_cards if card.units])


def _summarize_models(node: Node, card_units: tuple[int, ...], cards: Sequence[Card]) -> NodeSummary:
    """The same for these cards alone; `card_units` as for `_summarize_cards`."""
    summary = _summarize_cards(node, card_units, cards)
    if len(summary.models) <= 1:
        return summary
    by_model = {
        model: _summarize_cards(node, summary.card_units, [card for card in cards if card.model == model])
        for model in sorted(summary.models)
    }
    return replace(summary, by_model=by_model)


def select_models(summary: NodeSummary, models: frozenset[str] | None) -> NodeSummary:
    """The summary for requests that allow these models only; None: any."""
    if models is None or models >= summary.models:
        return summary
    allowed = [summary.by_model[model] for model in summary.models & models] if summary.by_model else []
    if len(allowed) == 1:
        return allowed[0]
    return replace(
        summary,
        allowed_card_units=_merge([each.allowed_card_units for each in allowed]),
        free_units=_merge([each.free_units for each in allowed]),
        empty_card_units=_merge([each.empty_card_units for each in allowed]),
        free_units_if_usable=_merge([each.free_units_if_usable for each in allowed]),
        empty_card_units_if_usable=_merge([each.empty_card_units_if_usable for each in allowed]),
        usable_cards=tuple(card for each in allowed for card in each.usable_cards),
    )


def select_view(summary: NodeSummary, request: CardRequest) -> NodeSummary:
    """The summary of the cards that the request's models and rules allow."""
    if request.rules is None:
        return select_models(summary, request.models)
    return summary.get_ruled_node().select_summary(request.models, request.rules)


class NodeTraits(NamedTuple):
    """The part of a summary that stays the same while pods come and go."""

    card_units: tuple[int, ...]
    is_open: bool
    needs_references: bool
    models: frozenset[str]


def get_node_traits(summary: NodeSummary) -> NodeTraits:
    return NodeTraits(summary.card_units, summary.is_open, summary.needs_references, summary.models)


class RequestKind(NamedTuple):
    """The part of a request that decides with which numbers of a node it is compared: all but its units and its cards."""

    card_count: int
    whole: bool
    has_references: bool
    models: frozenset[str] | None
    rules: RequestRules | None


def get_request_kind(request: CardRequest) -> RequestKind:
    return RequestKind(request.count, request.whole, request.has_references, request.models, request.rules)


class EquivalenceClass(NamedTuple):
    """The numbers that decide whether requests of one kind fit.

    Each is the most units that such a request may ask for and still pass one check of `vrampack.cards.reasons`, -1 if none
    passes. They ascend, from the last check to the first: a request that passes one passes those after it here.
    Thousands of nodes have a few dozen classes between them, so a new size of request is answered class by class.
    """

    free_units: int
    """Units that each of the requested number of usable cards has free."""
    uncrowded_units: int
    """The same if every card were usable."""
    shareable_units: int
    """The same if no rule limited the pods on a card."""
    free_units_if_usable: int
    """The same if pods of all tenants shared cards."""
    wired_units: int
    """Like `unreserved_units`, if containers of such a pod get the cards of its annotations; else -1."""
    unreserved_units: int
    """Units of each of that many cards of the permitted models that are not reserved for others."""
    permitted_units: int
    """Units of each of that many cards of models that the request allows and rules permit."""
    allowed_card_units: int
    """Units of each of that many cards of the models that the request allows."""
    card_units: int
    """Units of each of that many cards."""
    largest_card_units: int
    """Units of the largest card."""
    open_units: int
    """Unlimited if this version knows how containers get cards there."""
    any_units: int
    """Unlimited if some card has memory."""

    def find_obstacle(self, request: CardRequest) -> UnfitReason | None:
        """Why the request does not fit, None when it does: the answer of `vrampack.cards.fit.find_fitting_cards`.

        For a request that names cards it is the answer for a node that has none of them.
        """
        units = request.units
        if request.uuids is None and request.is_valid:
            if self.free_units >= units:
                return None
        elif self.allowed_card_units >= units:
            return UnfitReason.NOT_VALID if request.uuids is None else UnfitReason.UUID
        obstacles = _WHOLE_CARDS if request.whole else _ONE_CARD if request.count == 1 else _SEVERAL_CARDS
        # Find `units` among the numbers: most nodes that do not fit are full, and end at the first comparison.
        for obstacle, number in zip(obstacles, self[1:], strict=False):
            if number >= units:
                return obstacle
        return obstacles[-1]


def _list_obstacles(form: RequestForm) -> tuple[UnfitReason, ...]:
    """The reasons in the order of a class's numbers: each is the verdict if its number is the last that is too small."""
    reasons: dict[str | None, UnfitReason] = {check.class_number: reason for reason, check in list_checks(form)}
    return tuple(reasons[number] for number in EquivalenceClass._fields)


# Three constants, not a mapping: with a call and a look-up of the form a verdict would take 50% longer.
_ONE_CARD = _list_obstacles("one card")
_SEVERAL_CARDS = _list_obstacles("several cards")
_WHOLE_CARDS = _list_obstacles("whole cards")


def find_equivalence_class(summary: NodeSummary, kind: RequestKind) -> EquivalenceClass:
    """The node's class for requests of this kind."""
    count, whole, has_references, models, rules = kind
    cards = summary.card_units
    if not (cards and summary.is_open):
        return _CLOSED if cards else _NO_CARDS
    if rules is not None:
        return _find_ruled_class(summary, kind, rules)
    card_units = cards[-count] if len(cards) >= count else -1
    allowed = card_units
    if models is not None and not models >= summary.models:
        if models.isdisjoint(summary.models):
            allowed = -1
        else:
            summary = select_models(summary, models)
            allowed = _nth(summary.allowed_card_units, count)
    if allowed < 0 or (summary.needs_references and not has_references):
        return _build_class((-1, -1, -1, -1, -1, allowed, allowed, allowed, card_units, cards[-1], maxsize, maxsize))
    if whole:
        free = _nth(summary.empty_card_units, count)
        free_if_usable = _nth(summary.empty_card_units_if_usable, count)
    else:
        free = _nth(summary.free_units, count)
        free_if_usable = summary.free_units_if_usable[-count]
    usable = free_if_usable
    return _build_class(
        (free, usable, usable, usable, allowed, allowed, allowed, allowed, card_units, cards[-1], maxsize, maxsize)
    )


def _find_ruled_class(summary: NodeSummary, kind: RequestKind, rules: RequestRules) -> EquivalenceClass:
    """The same for requests under rules, on a node that has cards and is open."""
    views = summary.get_ruled_node().views
    view = views.find_view(views.find_key(kind.models, rules))
    free, uncrowded, shareable, room, unreserved, *cards = view.get_numbers(kind.card_count, whole=kind.whole)
    wired = unreserved
    if summary.needs_references and not kind.has_references:
        free = uncrowded = shareable = room = wired = -1
    card_units = _nth(summary.card_units, kind.card_count)
    return _build_class(
        (
            *(free, uncrowded, shareable, room, wired, unreserved),
            *cards,
            *(card_units, summary.card_units[-1], maxsize, maxsize),
        )
    )


def group_by_equivalence_class(
    summaries: Mapping[str, NodeSummary], kind: RequestKind
) -> dict[EquivalenceClass, dict[str, None]]:
    """The names of nodes by class. The nodes, at least one, must have equal traits.

    A new kind of request needs this for thousands of nodes that differ only in what is free.
    """
    groups: defaultdict[EquivalenceClass, dict[str, None]] = defaultdict(dict)
    some = next(iter(summaries.values()))
    shared = find_equivalence_class(some, kind)
    if kind.rules is not None or _selects_some_models(kind, some.models):
        # Traits do not tell which card is of which model: A, B, B and A, A, B are equal here.
        for name, summary in summaries.items():
            groups[find_equivalence_class(summary, kind)][name] = None
    elif shared.wired_units < 0:
        groups[shared] = dict.fromkeys(summaries)
    else:
        by_free: defaultdict[tuple[int, int], dict[str, None]] = defaultdict(dict)
        for name, free in zip(summaries, _list_free_numbers(summaries.values(), kind), strict=True):
            by_free[free][name] = None
        groups.update(
            (_build_class((free, usable, usable, usable, *shared[4:])), names)
            for (free, usable), names in by_free.items()
        )
    return groups


def _selects_some_models(kind: RequestKind, models: frozenset[str]) -> bool:
    """Whether such a request allows some of these models and not all."""
    return kind.models is not None and not kind.models >= models and not kind.models.isdisjoint(models)


def _list_free_numbers(summaries: Iterable[NodeSummary], kind: RequestKind) -> list[tuple[int, int]]:
    """The first two numbers of each class, for requests that allow any model."""
    count = kind.card_count
    if kind.whole:
        return [
            (_nth(each.empty_card_units, count), _nth(each.empty_card_units_if_usable, count)) for each in summaries
        ]
    return [
        (each.free_units[-count] if len(each.free_units) >= count else -1, each.free_units_if_usable[-count])
        for each in summaries
    ]


_NO_CARDS = EquivalenceClass(*(-1 for _ in EquivalenceClass._fields))
_CLOSED = _NO_CARDS._replace(any_units=maxsize)
_build_class: Callable[[tuple[int, ...]], EquivalenceClass] = partial(tuple.__new__, EquivalenceClass)
"""`EquivalenceClass._make`, without the check of the length, which takes as long as the rest."""


def find_tightest_units(summary: NodeSummary, request: CardRequest) -> tuple[int, ...]:
    """Free units of the fullest usable cards with room for the request, as many as it asks for; it must fit."""
    free = summary.empty_card_units if request.whole else summary.free_units
    first = bisect_left(free, request.units)
    return free[first : first + request.count]


def _summarize_cards(node: Node, card_units: tuple[int, ...], allowed: Sequence[Card]) -> NodeSummary:
    """Summarize in one pass, as it runs at every change to a node. `card_units` are those of all its cards, if `allowed` is a part."""
    usable = [(card.units, card.used_units) for card in allowed if card.healthy and not card.cordoned]
    free, empty = _list_free_units(usable)
    free_of_all, empty_of_all = free, empty
    if len(usable) < len(allowed):
        free_of_all, empty_of_all = _list_free_units([(card.units, card.used_units) for card in allowed])
    allowed_units = tuple(sorted([card.units for card in allowed]))
    return NodeSummary(
        card_units=card_units or allowed_units,
        allowed_card_units=allowed_units,
        free_units=free,
        empty_card_units=empty,
        free_units_if_usable=free_of_all,
        empty_card_units_if_usable=empty_of_all,
        used_units=node.used_units,
        total_units=node.total_units,
        usable_cards=tuple(usable),
        is_open=node.injection is not None,
        needs_references=node.needs_references,
        models=frozenset([card.model for card in allowed]),
        node=node,
    )


def _list_free_units(cards: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two ascending tuples: the free units of each card, and the units of the empty cards."""
    free = [units - used if used < units else 0 for units, used in cards]
    empty = [units for units, used in cards if not used]
    return tuple(sorted(free)), tuple(sorted(empty))


def _merge(parts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted(chain.from_iterable(parts)))


def _nth(ascending: tuple[int, ...], count: int) -> int:
    """The `count`-th largest, so that `count` of them are as large or larger; -1 if there are fewer."""
    return ascending[-count] if len(ascending) >= count else -1
