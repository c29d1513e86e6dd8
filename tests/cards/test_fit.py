"""Which cards a request may take, or which fixed text gives the reason why not: against a table and brute force."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given, settings

from tests.support.builders import UNIT_MIB, snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Card, CardInstances, Node, NodeFacts, build_node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest, RequestRules

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

NEVER = [
    "no shareable GPU memory",
    "injection mode not known",
    "agent too old for this request",
    "larger than any card",
    "too few cards",
    "card model not allowed",
    "card uuid not here",
    "request not valid",
    "card model not allowed by a rule",
    "card reserved by a rule",
    "card does not offer all that is asked for",
    "created before the admission policy",
    "whole card asks for too little",
]
LATER = [
    "no card with enough free memory",
    "not enough cards with free memory",
    "no empty card",
    "no card with enough free besides memory",
    "card may not be shared with its pods",
    "card has as many pods as a rule allows",
    "card has as many containers as its node can limit",
    "card unhealthy or cordoned",
    "node not seen yet",
    "its group does not fit",
]


def test_unfit_reasons_have_fixed_texts_in_a_fixed_order() -> None:
    assert [reason.value for reason in UnfitReason] == NEVER + LATER
    assert [reason.value for reason in UnfitReason if reason.is_unresolvable] == NEVER


EXACT, CDI, LEGACY = snapshot_node(), snapshot_node(injection="cdi"), snapshot_node(legacy=True)
UNKNOWN = snapshot_node(injection=None)
UNWIRED = CardRequest(4, has_references=False)
OTHER_UNIT = build_node(NodeFacts("n", unit_mib=256), snapshot_node(units=(16,)).cards, unit_mib=UNIT_MIB)

SERVES_ONE = snapshot_node(serves=frozenset({"memory"}))
FULL = CardInstances("GPU-0", 25, 25)
TWO_LEFT = CardInstances("GPU-0", 25, 23, are_per_container=True)

REFUSALS: dict[str, tuple[Node, CardRequest, str]] = {
    "no cards": (snapshot_node(units=()), CardRequest(4), "no shareable GPU memory"),
    "an agent that knows no requests for several cards": (
        SERVES_ONE,
        CardRequest(4, count=2),
        "agent too old for this request",
    ),
    "an agent that knows no whole cards": (SERVES_ONE, CardRequest(4, whole=True), "agent too old for this request"),
    "an agent that knows nothing": (
        snapshot_node(serves=frozenset()),
        CardRequest(4),
        "agent too old for this request",
    ),
    "no instance left": (
        snapshot_node(units=(16,), instances=(FULL,)),
        CardRequest(4),
        "card has as many containers as its node can limit",
    ),
    # two of three that its pod and two containers take
    "too few instances left": (
        snapshot_node(units=(16,), instances=(TWO_LEFT,)),
        CardRequest(4, instances=3),
        "card has as many containers as its node can limit",
    ),
    "cards of no units": (snapshot_node(units=(0, 0)), CardRequest(4), "no shareable GPU memory"),
    "another unit": (OTHER_UNIT, CardRequest(4), "no shareable GPU memory"),
    # 17 > 16
    "larger than any card": (snapshot_node(units=(8, 16)), CardRequest(17), "larger than any card"),
    "larger than any card, whole": (snapshot_node(units=(8, 16)), CardRequest(17, whole=True), "larger than any card"),
    # 3 cards asked, 2 there
    "fewer cards than asked": (snapshot_node(units=(16, 16)), CardRequest(4, count=3), "too few cards"),
    # 10 fits one of two cards, two are asked
    "fewer large cards than asked": (snapshot_node(units=(8, 16)), CardRequest(10, count=2), "too few cards"),
    "another model": (
        snapshot_node(models=("A", "A")),
        CardRequest(4, models=frozenset({"B"})),
        "card model not allowed",
    ),
    # one card of model A, two are asked
    "fewer cards of the model": (
        snapshot_node(models=("A", "B")),
        CardRequest(4, count=2, models=frozenset({"A"})),
        "card model not allowed",
    ),
    # the A is too small for 10, the B large enough
    "the model's cards are too small": (
        snapshot_node(units=(8, 16), models=("A", "B")),
        CardRequest(10, models=frozenset({"A"})),
        "card model not allowed",
    ),
    "another uuid": (snapshot_node(), CardRequest(4, uuids=frozenset({"GPU-7"})), "card uuid not here"),
    "fewer of the uuids": (
        snapshot_node(),
        CardRequest(4, count=2, uuids=frozenset({"GPU-0", "GPU-7"})),
        "card uuid not here",
    ),
    "the uuid is of another model": (
        snapshot_node(models=("A", "B")),
        CardRequest(4, models=frozenset({"A"}), uuids=frozenset({"GPU-1"})),
        "card uuid not here",
    ),
    "an injection that this version does not know": (UNKNOWN, CardRequest(4), "injection mode not known"),
    "not wired, and the node goes by the annotations": (EXACT, UNWIRED, "created before the admission policy"),
    "not valid": (snapshot_node(), CardRequest(4, is_valid=False), "request not valid"),
    # free 16 - 13 = 3 and 16 - 14 = 2, 4 asked
    "full": (snapshot_node(used=(13, 14)), CardRequest(4), "no card with enough free memory"),
    # free max(0, 16 - 20) = 0
    "over-committed": (snapshot_node(units=(16,), used=(20,)), CardRequest(1), "no card with enough free memory"),
    # free 16 and 3: one card has 4, two are asked
    "one of two cards full": (
        snapshot_node(used=(0, 13)),
        CardRequest(4, count=2),
        "not enough cards with free memory",
    ),
    "both of two cards full": (
        snapshot_node(used=(13, 13)),
        CardRequest(4, count=2),
        "not enough cards with free memory",
    ),
    "no card empty": (snapshot_node(used=(1, 1)), CardRequest(4, whole=True), "no empty card"),
    "one of two cards empty": (snapshot_node(used=(0, 1)), CardRequest(4, count=2, whole=True), "no empty card"),
    # the empty card has 2 units, 4 are asked; the large one is in use
    "only a small card empty": (snapshot_node(units=(2, 16), used=(0, 1)), CardRequest(4, whole=True), "no empty card"),
    "unhealthy": (snapshot_node(units=(16,), unhealthy=(0,)), CardRequest(4), "card unhealthy or cordoned"),
    "cordoned": (snapshot_node(units=(16,), cordoned=(0,)), CardRequest(4), "card unhealthy or cordoned"),
    "the roomy card is sick, the sound one full": (
        snapshot_node(used=(0, 13), unhealthy=(0,)),
        CardRequest(4),
        "card unhealthy or cordoned",
    ),
    "one of two asked is sick": (snapshot_node(unhealthy=(0,)), CardRequest(4, count=2), "card unhealthy or cordoned"),
    "the empty card is cordoned": (
        snapshot_node(used=(0, 1), cordoned=(0,)),
        CardRequest(4, whole=True),
        "card unhealthy or cordoned",
    ),
}

FIRST: dict[str, tuple[Node, CardRequest, str]] = {
    "no memory before a wrong request": (
        snapshot_node(units=()),
        CardRequest(4, is_valid=False),
        "no shareable GPU memory",
    ),
    "no memory before the injection": (
        snapshot_node(units=(), injection=None),
        CardRequest(4),
        "no shareable GPU memory",
    ),
    "the injection before too large": (UNKNOWN, CardRequest(17, has_references=False), "injection mode not known"),
    "a wrong request before one not wired": (
        EXACT,
        CardRequest(4, is_valid=False, has_references=False),
        "request not valid",
    ),
    "not wired before room": (
        snapshot_node(used=(16, 16)),
        CardRequest(4, has_references=False),
        "created before the admission policy",
    ),
    "the injection before the agent's age": (
        snapshot_node(injection=None, serves=frozenset()),
        CardRequest(4),
        "injection mode not known",
    ),
    "the agent's age before too large": (
        snapshot_node(serves=frozenset()),
        CardRequest(17),
        "agent too old for this request",
    ),
    "instances before health": (
        snapshot_node(units=(16,), unhealthy=(0,), instances=(FULL,)),
        CardRequest(4),
        "card has as many containers as its node can limit",
    ),
    "too large before too few": (snapshot_node(units=(8,)), CardRequest(9, count=2), "larger than any card"),
    "too few before the model": (
        snapshot_node(models=("A", "A")),
        CardRequest(4, count=3, models=frozenset({"B"})),
        "too few cards",
    ),
    "the model before the uuid": (
        snapshot_node(models=("A", "A")),
        CardRequest(4, models=frozenset({"B"}), uuids=frozenset({"GPU-7"})),
        "card model not allowed",
    ),
    "the uuid before a wrong request": (
        snapshot_node(),
        CardRequest(4, uuids=frozenset({"GPU-7"}), is_valid=False),
        "card uuid not here",
    ),
    "too large before a wrong request": (snapshot_node(), CardRequest(10**10, is_valid=False), "larger than any card"),
    "a wrong request before room": (snapshot_node(used=(16, 16)), CardRequest(4, is_valid=False), "request not valid"),
    "too large looks at sick cards too": (
        snapshot_node(units=(8, 16), unhealthy=(1,)),
        CardRequest(10),
        "card unhealthy or cordoned",
    ),
    "too few looks at sick cards too": (
        snapshot_node(cordoned=(0, 1)),
        CardRequest(4, count=2),
        "card unhealthy or cordoned",
    ),
    "room before health": (
        snapshot_node(used=(13, 13), unhealthy=(0,)),
        CardRequest(4),
        "no card with enough free memory",
    ),
}


@pytest.mark.parametrize(("node", "request_", "want"), (REFUSALS | FIRST).values(), ids=REFUSALS | FIRST)
def test_every_refusal_has_its_reason(node: Node, request_: CardRequest, want: str) -> None:
    assert find_fitting_cards(node, request_) == Unfit(UnfitReason(want))


FITS = {
    # free 16 - 12 = 4 and 16
    "exactly the room left": (snapshot_node(used=(12, 0)), CardRequest(4), [0, 1]),
    # free 3 and 16
    "only the roomy card": (snapshot_node(used=(13, 0)), CardRequest(4), [1]),
    "only sound cards": (snapshot_node(units=(16, 16, 16), unhealthy=(0,), cordoned=(1,)), CardRequest(4), [2]),
    "only cards of the model": (snapshot_node(models=("A", "B")), CardRequest(4, models=frozenset({"B", "C"})), [1]),
    "only cards of the uuid": (snapshot_node(), CardRequest(4, uuids=frozenset({"GPU-1", "GPU-9"})), [1]),
    # all that fit, not only as many as asked
    "two of three": (snapshot_node(units=(8, 8, 8)), CardRequest(8, count=2), [0, 1, 2]),
    "the card a request fills": (snapshot_node(units=(8, 16)), CardRequest(16), [1]),
    "whole: empty cards large enough": (
        snapshot_node(units=(2, 8, 16), used=(0, 0, 1)),
        CardRequest(4, whole=True),
        [1],
    ),
    "one for which its agent is not too old": (SERVES_ONE, CardRequest(4), [0, 1]),
    "as many instances as it takes": (snapshot_node(instances=(FULL, TWO_LEFT)), CardRequest(4, instances=2), [1]),
    "one instance for the pod where no hook runs": (
        snapshot_node(units=(16,), instances=(CardInstances("GPU-0", 25, 24),)),
        CardRequest(4, instances=3),
        [0],
    ),
    "not wired, and the plugin gives the card": (CDI, UNWIRED, [0, 1]),
    "not wired, on a legacy node": (LEGACY, UNWIRED, [0, 1]),
    "mixed cards": (snapshot_node(units=(15, 80, 0), used=(12, 78, 0)), CardRequest(3), [0]),
}


@pytest.mark.parametrize(("node", "request_", "want"), FITS.values(), ids=FITS)
def test_all_fitting_cards_are_listed_in_index_order(node: Node, request_: CardRequest, want: list[int]) -> None:
    fitting = find_fitting_cards(node, request_)
    assert isinstance(fitting, tuple)
    assert [card.index for card in fitting] == want


def would_do(card: Card, request: CardRequest) -> bool:
    """One healthy, uncordoned, allowed card with room, by the contract's words."""
    room = card.used_units == 0 and card.units > 0 if request.whole else True
    return (
        card.healthy
        and not card.cordoned
        and (request.models is None or card.model in request.models)
        and (request.uuids is None or card.uuid in request.uuids)
        and room
        and (
            card.units - card.used_units >= request.units
            if request.payment is None
            else card.units >= request.payment.least_units
        )
        and keeps_the_rules(card, request.rules)
        and has_instances(card, request)
        and has_amounts(card, request)
    )


def has_amounts(card: Card, request: CardRequest) -> bool:
    offered, taken = dict(card.offered), dict(card.taken)
    return all(taken.get(axis, 0) + amount <= offered.get(axis, 0) for axis, amount in request.amounts)


def has_instances(card: Card, request: CardRequest) -> bool:
    """By the words of docs/records.md."""
    room = card.instances
    return room is None or room.most - room.used >= (request.instances if room.are_per_container else 1)


def list_words(request: CardRequest) -> set[str]:
    """By the words of docs/records.md."""
    words = {"several-cards": request.count > 1, "whole-cards": request.whole, "uneven-cards": not request.is_even}
    return {"memory"} | {word for word, is_needed in words.items() if is_needed}


def keeps_the_rules(card: Card, rules: RequestRules | None) -> bool:
    """By the words of docs/configuration.md."""
    if rules is None:
        return True
    is_alone = not card.tenants
    shares_with_own = rules.tenant != b"" and card.tenants == {rules.tenant}
    return (
        (rules.tenant is None or is_alone or shares_with_own)
        and card.free_pods != 0
        and (card.reserve is None or card.reserve in rules.reserves)
        and (rules.models is None or card.model in rules.models)
    )


def some_set_does(node: Node, cards: Iterable[Card], request: CardRequest) -> bool:
    """Brute force: some set of so many distinct cards each of which would do."""
    is_wired = request.has_references or node.injection == "cdi" or node.legacy
    is_served = node.unserved_words.isdisjoint(list_words(request))
    if not (request.is_valid and is_wired and is_served) or node.injection is None or node.problem:
        return False
    return any(
        all(would_do(card, request) for card in each)
        and (request.payment is None or sum(card.units for card in each) <= request.payment.most_units)
        for each in combinations(cards, request.count)
    )


@settings(max_examples=100, deadline=None)
@given(node_strategy(), request_strategy())
@example(snapshot_node(units=(0,)), CardRequest(1, whole=True))
def test_a_node_fits_if_and_only_if_some_set_of_its_cards_does(node: Node, request_: CardRequest) -> None:
    fitting = find_fitting_cards(node, request_)
    assert isinstance(fitting, tuple) == some_set_does(node, node.cards, request_)
    if isinstance(fitting, tuple) and request_.payment is None:
        assert list(fitting) == [card for card in node.cards if would_do(card, request_)]


@settings(max_examples=100, deadline=None)
@given(node_strategy(), request_strategy())
def test_a_rejection_is_unresolvable_only_if_the_empty_healthy_node_does_not_fit(
    node: Node, request_: CardRequest
) -> None:
    fitting = find_fitting_cards(node, request_)
    ideal = [
        replace(
            card,
            used_units=0,
            taken=(),
            healthy=True,
            cordoned=False,
            free_pods=None,
            tenants=frozenset(),
            instances=None,
        )
        for card in node.cards
    ]
    is_never = isinstance(fitting, Unfit) and fitting.reason.is_unresolvable
    assert is_never == (not some_set_does(node, ideal, request_))


@PATIENT
@given(node_strategy(), request_strategy())
def test_only_reasons_derived_from_the_node_are_given(node: Node, request_: CardRequest) -> None:
    """That the ledger lacks the node cannot be found from its cards."""
    fitting = find_fitting_cards(node, request_)
    assert not (isinstance(fitting, Unfit) and fitting.reason is UnfitReason.NOT_SEEN)
