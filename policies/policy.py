"""What a policy is: a module with one pure function that rates nodes. `registry.py` lists every policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from policies.outlook import Outlook, PolicyWeights
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Card
from vrampack.cards.payment import choose_paid_cards
from vrampack.cards.reasons import find_occasion
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import OpenCard, Shape


class FittingView(NamedTuple):
    """What a policy sees of a node that fits. Nodes that look the same get the same score, and their names break ties."""

    shape: Shape
    """All of the node, for its sums."""
    cards: tuple[OpenCard, ...]
    """The usable cards that the request's models and rules allow, sorted."""
    fitting: tuple[OpenCard, ...]
    """Those of which the request may take any, at least as many as it asks for."""
    host: HostResources | None = None
    """What the host has left, rounded down; None if unknown."""


class Rating(NamedTuple):
    """How good a node is, higher is better, and which of its fitting cards to take."""

    score: float
    cards: tuple[OpenCard, ...]


@dataclass(frozen=True, slots=True)
class ScoredCards:
    """A rating of a certain node, with the node's own cards."""

    score: float
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class ScoreTerm:
    """A part of a score, in words."""

    name: str
    value: float


ScoreTerms: TypeAlias = tuple[ScoreTerm, ...]


class PolicyTraits(NamedTuple):
    """What a policy reads besides cards, and what a configuration can change of it."""

    looks_ahead: bool = False
    """Whether it reads the forecast. If no policy does, none is computed."""
    reads_hosts: bool = False
    """Whether it reads what hosts have left. If no policy does, CPU and memory are not counted."""
    counts_leftovers: bool = False
    """Whether it reads `Outlook.leftovers`: its scores are recomputed whenever these are. Only one that looks ahead does."""
    weights: type[PolicyWeights] | None = None
    """The type of `Outlook.weights`, if a configuration changes them; None: the policy has no weights."""


class Policy(Protocol):
    """The contents of a policy's module; it may also have `bound_scores`, a `BoundScores`."""

    TRAITS: PolicyTraits

    def rate(self, views: Iterable[FittingView], request: CardRequest, outlook: Outlook, /) -> Iterator[Rating]:
        """The rating of each node, in order. What the request and the outlook decide alone is computed once for all."""
        ...

    def list_terms(
        self, view: FittingView, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook, /
    ) -> ScoreTerms:
        """The terms that add up to the node's score, once these cards are chosen."""
        ...


BoundScores: TypeAlias = Callable[[Iterable[FittingView], CardRequest, Outlook], Iterator[float]]
"""Upper bounds of the scores of nodes, much cheaper than these, so that only nodes that may be best are rated. Asked only about
requests for a part of one card."""


def find_bound_scores(policy: Policy) -> BoundScores | None:
    """The bounds of the policy, if it has any."""
    bound_scores: BoundScores | None = getattr(policy, "bound_scores", None)
    return bound_scores


def build_view(shape: Shape, request: CardRequest, host: HostResources | None = None) -> FittingView | None:
    """The view of a shape for a request that names no cards; None if it does not fit."""
    payment = request.payment
    units = request.units if payment is None else payment.least_units
    if (
        not shape.free
        or shape.free[-1] < units
        or not request.is_valid
        or find_occasion(request, shape.terms) is not None
    ):
        return None
    cards = shape.list_open_cards(request)
    if request.whole:
        fitting = tuple([card for card in cards if not card.used_units and card.units >= units])
        if payment is not None:
            fitting = tuple(choose_paid_cards(fitting, payment, request.count))
    else:
        fitting = tuple([card for card in cards if card.units - card.used_units >= units])
    return FittingView(shape, cards, fitting, host) if len(fitting) >= request.count else None
