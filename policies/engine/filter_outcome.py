"""Which of the named nodes fit, and the texts of the reasons of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize

from vrampack.cards.reasons import UnfitReason
from vrampack.cards.shape import FitClass

NOT_SEEN = FitClass((UnfitReason.NOT_SEEN,), (-1,))
ALWAYS_FITS = FitClass((), (maxsize,))
_TEXTS: Mapping[UnfitReason, str] = {reason: reason.value for reason in UnfitReason}
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
