"""Which of the named nodes fit, and the texts of the reasons of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import NamedTuple

from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import FitClass

FITS = FitClass((), (maxsize,))
NOT_SEEN = FitClass((UnfitReason.NOT_SEEN,), (-1,))
_TEXTS: Mapping[UnfitReason, str] = {reason: reason.value for reason in UnfitReason}
_RANKS: Mapping[UnfitReason, int] = {reason: at for at, reason in enumerate(UnfitReason)} | {UnfitReason.NOT_SEEN: -1}
_UNRESOLVABLE = frozenset(reason.value for reason in UnfitReason if reason.is_unresolvable)


@dataclass(frozen=True, slots=True)
class FilterOutcome:
    """Which of the given nodes fit, in the given order, and the reasons of the others."""

    passed: list[str]
    unschedulable: dict[str, str]
    """Nodes that could fit after something changes."""
    unresolvable: dict[str, str]

    def with_node_passed(self, passed_name: str, names: Sequence[str]) -> FilterOutcome:
        """The same outcome, with this node, one of `names`, among those that fit."""
        passing = {passed_name, *self.passed}
        return FilterOutcome(
            [name for name in dict.fromkeys(names) if name in passing],
            {name: reason for name, reason in self.unschedulable.items() if name != passed_name},
            {name: reason for name, reason in self.unresolvable.items() if name != passed_name},
        )

    def with_all_refused(self, reason: UnfitReason) -> FilterOutcome:
        """The same outcome, with every node that fits refused for this reason."""
        refused = dict.fromkeys(self.passed, reason.value)
        return FilterOutcome([], self.unschedulable | refused, self.unresolvable)


class _ReasonTexts(dict[FitClass, str]):
    """The reason of each class for requests of one size that do not fit."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self._units = units

    def __missing__(self, fit_class: FitClass) -> str:
        text = self[fit_class] = _TEXTS[fit_class.get_obstacle(self._units)]
        return text


def judge_node(node: Node | None, request: CardRequest) -> FitClass:
    """A class of its own, for a node that looks different to this request or to its pod alone."""
    fitting = Unfit(UnfitReason.NOT_SEEN) if node is None else find_fitting_cards(node, request)
    return FitClass((fitting.reason,), (-1,)) if isinstance(fitting, Unfit) else FITS


def filter_names(names: Sequence[str], classes: Mapping[str, FitClass], units: int) -> FilterOutcome:
    """By the class of each node. Most of a verb's time goes into thousands of look-ups."""
    get_class, texts = classes.get, _ReasonTexts(units)
    unschedulable: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    passed: list[str] = []
    for name in names:
        fit_class = get_class(name, NOT_SEEN)
        if fit_class.most_units >= units:
            passed.append(name)
        elif (text := texts[fit_class]) in _UNRESOLVABLE:
            unresolvable[name] = text
        else:
            unschedulable[name] = text
    if len(set(passed)) < len(passed):
        passed = list(dict.fromkeys(passed))
    return FilterOutcome(passed, unschedulable, unresolvable)


class NearestNode(NamedTuple):
    """The refused node that passes most checks, and of several such the one with most room."""

    name: str
    reason: UnfitReason
    free_units: int
    """Of each of as many cards as are asked for, if memory is what they lack; else -1."""


def find_nearest_node(names: Iterable[str], classes: Mapping[str, FitClass], units: int) -> NearestNode | None:
    """By the class of each node; None if any of them fits, or there is none."""
    names_by_class: dict[FitClass, str] = {}
    get_class = classes.get
    for name in names:
        fit_class = get_class(name, NOT_SEEN)
        known = names_by_class.get(fit_class)
        if known is None or name < known:
            names_by_class[fit_class] = name
    if any(fit_class.most_units >= units for fit_class in names_by_class):
        return None
    nodes = [_describe_refusal(name, fit_class, units) for fit_class, name in names_by_class.items()]
    return min(nodes, key=lambda node: (-rank_reason(node.reason), -node.free_units, node.name), default=None)


def _describe_refusal(name: str, fit_class: FitClass, units: int) -> NearestNode:
    reason = fit_class.get_obstacle(units)
    lacks_memory = reason in (UnfitReason.NO_ROOM, UnfitReason.NOT_ENOUGH_ROOM)
    return NearestNode(name, reason, fit_class.numbers[fit_class.reasons.index(reason)] if lacks_memory else -1)


def find_nearest_reason(reasons: Iterable[str]) -> UnfitReason:
    """Of the texts of several nodes' reasons, that of the node that passes most checks; `NOT_SEEN` if there is none."""
    return max(map(UnfitReason, reasons), key=rank_reason, default=UnfitReason.NOT_SEEN)


def rank_reason(reason: UnfitReason) -> int:
    """How many checks of the table a node passes that has this reason."""
    return _RANKS[reason]
