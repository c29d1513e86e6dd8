"""The engine remembers what it may and answers as if it remembered nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cards.fit import Reason, Unfit
from cards.node import Node
from cards.request import Ask, ContainerAsk, Request
from policies.engine import POLICIES, SHAPES_KEPT, Engine, Judgement, plain_judge
from policies.policy import Demand, Ranked
from policies.tuning import PolicyName, PolicyTuning
from tests.builders import a_node, an_ask
from tests.cards.strategies import nodes, requests

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

EVERY = PolicyTuning(allowed=("binpack", "spread", "node-binpack"))


class FakeLedger:
    """Nodes by name; some pods find a node as nobody else does, at version 0."""

    def __init__(self, cluster: Iterable[Node] = ()) -> None:
        self.nodes = {node.name: node for node in cluster}
        self.private: dict[tuple[str, str], Node] = {}

    def node_for(self, name: str, uid: str) -> Node | None:
        return self.private.get((name, uid)) or self.nodes.get(name)

    def node_count(self) -> int:
        return len(self.nodes)

    def put(self, *cluster: Node) -> None:
        self.nodes |= {node.name: node for node in cluster}


def test_answers_of_deleted_nodes_do_not_pile_up() -> None:
    """An autoscaler makes and removes nodes for ever; the scheduler never asks about a removed one again."""
    ledger = FakeLedger([])
    engine = Engine(ledger, EVERY)
    for number in range(50):
        ledger.nodes.clear()
        ledger.put(a_node(f"n{number}"))
        engine.judge([f"n{number}"], an_ask(4), "p")
    assert sum(len(kept) for kept in engine._kept.values()) <= 2


def test_names_are_answered_in_the_order_asked() -> None:
    engine = Engine(FakeLedger([a_node("a"), a_node("b", used=(16, 16)), a_node("c")]), EVERY)
    assert list(engine.judge(["c", "b", "a"], an_ask(), "p")) == ["c", "b", "a"]


def test_a_node_nobody_has_seen_says_so() -> None:
    assert Engine(FakeLedger(), EVERY).judge(["new"], an_ask(), "p") == {"new": Unfit(Reason.NOT_SEEN)}


def test_an_unchanged_node_is_not_judged_again() -> None:
    """Seen by a ledger that changes a node and, against its promise, not its version."""
    ledger = FakeLedger([a_node(version=7)])
    engine = Engine(ledger, EVERY)
    before = engine.judge(["n"], an_ask(), "p")["n"]
    ledger.put(a_node(version=7, used=(16, 16)))
    assert engine.judge(["n"], an_ask(), "q")["n"] is before


def test_a_changed_node_is_judged_anew() -> None:
    ledger = FakeLedger([a_node(version=7)])
    engine = Engine(ledger, EVERY)
    assert isinstance(engine.judge(["n"], an_ask(), "p")["n"], Ranked)
    ledger.put(a_node(version=8, used=(16, 16)))
    assert engine.judge(["n"], an_ask(), "p")["n"] == Unfit(Reason.NO_ROOM)
    ledger.put(a_node(version=9))
    assert isinstance(engine.judge(["n"], an_ask(), "p")["n"], Ranked)


def test_another_shape_or_policy_is_another_answer() -> None:
    engine = Engine(FakeLedger([a_node(used=(10, 4))]), EVERY)
    taken = {
        (units, policy): engine.judge(["n"], an_ask(units, annotations={"vrampack.dev/policy": policy}), "p")["n"]
        for units in (4, 8)
        for policy in ("binpack", "spread")
    }
    # free 6 and 12: 4 fits both, 8 only the second
    assert {key: indices(each) for key, each in taken.items()} == {
        (4, "binpack"): [0],
        (4, "spread"): [1],
        (8, "binpack"): [1],
        (8, "spread"): [1],
    }


def indices(judgement: Judgement) -> list[int]:
    return [card.index for card in judgement.cards] if isinstance(judgement, Ranked) else []


def test_what_one_pod_finds_is_told_to_nobody_else() -> None:
    """Its own reservation is free for it alone; that node has version 0."""
    ledger = FakeLedger([a_node(used=(16, 16), version=7)])
    ledger.private["n", "mine"] = a_node(used=(0, 16), version=0)
    engine = Engine(ledger, EVERY)
    assert indices(engine.judge(["n"], an_ask(), "mine")["n"]) == [0]
    assert engine.judge(["n"], an_ask(), "other")["n"] == Unfit(Reason.NO_ROOM)
    assert indices(engine.judge(["n"], an_ask(), "mine")["n"]) == [0]
    ledger.private["n", "mine"] = a_node(used=(16, 0), version=0)
    assert indices(engine.judge(["n"], an_ask(), "mine")["n"]) == [1]


def test_a_node_that_went_and_came_back_is_judged_anew() -> None:
    ledger = FakeLedger([a_node(version=7)])
    engine = Engine(ledger, EVERY)
    engine.judge(["n"], an_ask(), "p")
    ledger.nodes.clear()
    assert engine.judge(["n"], an_ask(), "p")["n"] == Unfit(Reason.NOT_SEEN)
    ledger.put(a_node(version=8, used=(16, 16)))
    assert engine.judge(["n"], an_ask(), "p")["n"] == Unfit(Reason.NO_ROOM)


def test_more_shapes_than_are_kept_are_answered_all_the_same() -> None:
    node = a_node(units=(2 * SHAPES_KEPT,))
    engine = Engine(FakeLedger([node]), EVERY)
    for _ in range(2):
        for units in range(1, 2 * SHAPES_KEPT + 2):
            want = plain_judge(node, Request(units), "binpack", Demand())
            assert engine.judge(["n"], an_ask(units), "p")["n"] == want


WISHES: dict[str, tuple[PolicyTuning, str, PolicyName]] = {
    "none": (EVERY, "", "binpack"),
    "another default": (PolicyTuning(default="spread"), "", "spread"),
    "allowed": (EVERY, "spread", "spread"),
    "not allowed": (PolicyTuning(allowed=("node-binpack",)), "spread", "binpack"),
    "nothing is allowed": (PolicyTuning(), "spread", "binpack"),
    "unknown": (EVERY, "best", "binpack"),
    "in another case": (EVERY, "Spread", "binpack"),
    "the default need not be allowed": (PolicyTuning(default="node-binpack", allowed=("spread",)), "x", "node-binpack"),
}


@pytest.mark.parametrize(("tuning", "wish", "want"), WISHES.values(), ids=WISHES)
def test_a_pods_policy_is_a_wish_within_what_is_allowed(tuning: PolicyTuning, wish: str, want: PolicyName) -> None:
    assert Engine(FakeLedger(), tuning).policy_for(an_ask(annotations={"vrampack.dev/policy": wish})) == want


@pytest.mark.parametrize(
    "text", ['{"default":"best"}', '{"allowed":["best"]}', '{"allowed":"spread"}', '{"weights":{}}']
)
def test_tuning_is_strict(text: str) -> None:
    with pytest.raises(ValidationError):
        PolicyTuning.model_validate_json(text)


STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abc"), nodes(), max_size=3),
        st.integers(0, 2),
        st.sampled_from(sorted(POLICIES)),
        st.lists(st.sampled_from("abcd"), max_size=4),
    ),
    max_size=8,
)


@PATIENT
@given(STEPS, st.lists(requests(), min_size=3, max_size=3))
def test_the_engine_says_what_the_plain_way_says(
    steps: list[tuple[dict[str, Node], int, PolicyName, list[str]]], shapes: list[Request]
) -> None:
    """However the cluster changes between questions, and whichever questions come back."""
    ledger = FakeLedger()
    engine = Engine(ledger, EVERY)
    version = 0
    for changes, at, policy, names in steps:
        for name, node in changes.items():
            version += 1
            ledger.put(replace(node, name=name, version=version))
        judged = engine.judge(names, an_ask_of(shapes[at], policy), "p")
        for name in names:
            known = ledger.nodes.get(name)
            plain = plain_judge(known, shapes[at], policy, Demand()) if known else Unfit(Reason.NOT_SEEN)
            assert judged[name] == plain


def an_ask_of(request: Request, policy: PolicyName) -> Ask:
    return Ask(request, (ContainerAsk("main", "main", 0, request.units * request.count),), policy)
