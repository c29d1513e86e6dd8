"""The engine remembers what it may and answers as if it remembered nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from policies.engine.engine import CACHED_TABLES, Engine
from policies.evaluate import Evaluation, evaluate_node, sort_by_score
from policies.policy import ScoredCards
from policies.registry import POLICIES
from policies.tuning import PolicyName, PolicyTuning
from tests.support.builders import pod_request, snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.node_summary import find_equivalence_class, is_plain_request, summarize_node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest, ContainerRequest, PodRequest

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

EVERY = PolicyTuning(allowed=("binpack", "spread", "node-binpack"))


class FakeLedger:
    """Nodes by name and the generations of their changes; some pods find a node in another state than others do."""

    def __init__(self, cluster: Iterable[Node] = ()) -> None:
        self.nodes: dict[str, Node] = {}
        self.private: dict[tuple[str, str], Node] = {}
        self.generation = 0
        self.is_forgetful = False
        self.asked: list[int] = []
        """The generations whose later changes were requested."""
        self._changes: list[tuple[int, str]] = []
        self.put(*cluster)

    def get_node(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def get_node_for_pod(self, name: str, uid: str) -> Node | None:
        return self.private.get((name, uid)) or self.nodes.get(name)

    def list_node_names(self) -> set[str]:
        return set(self.nodes)

    def list_pod_specific_nodes(self, uid: str) -> list[str]:
        return [name for name, owner in self.private if owner == uid]

    def list_nodes_changed_since(self, generation: int) -> list[str] | None:
        self.asked.append(generation)
        return None if self.is_forgetful else [name for at, name in self._changes if at > generation]

    def put(self, *cluster: Node) -> None:
        for node in cluster:
            self.nodes[node.name] = node
            self._changed(node.name)

    def take(self, name: str) -> None:
        del self.nodes[name]
        self._changed(name)

    def _changed(self, name: str) -> None:
        self.generation += 1
        self._changes.append((self.generation, name))


def list_reasons(engine: Engine, names: list[str], ask: PodRequest | None = None, uid: str = "p") -> dict[str, str]:
    """What is said of each name: its reason, empty where the pod fits."""
    outcome = engine.filter_nodes(names, ask or pod_request(), uid)
    return dict.fromkeys(outcome.passed, "") | outcome.unschedulable | outcome.unresolvable


def test_names_that_fit_are_answered_in_the_order_asked() -> None:
    engine = Engine(
        FakeLedger(
            [snapshot_node("a"), snapshot_node("b", used=(16, 16)), snapshot_node("c"), snapshot_node("d", units=(1,))]
        ),
        EVERY,
    )
    outcome = engine.filter_nodes(["d", "c", "b", "a"], pod_request(), "p")
    assert outcome.passed == ["c", "a"]
    assert outcome.unschedulable == {"b": "no card with enough free memory"}
    assert outcome.unresolvable == {"d": "larger than any card"}


def test_a_name_that_stands_twice_is_answered_once() -> None:
    engine = Engine(FakeLedger([snapshot_node("a"), snapshot_node("b", used=(16, 16))]), EVERY)
    outcome = engine.filter_nodes(["a", "b", "a", "b", "c", "c"], pod_request(), "p")
    assert (outcome.passed, list(outcome.unschedulable)) == (["a"], ["b", "c"])


def test_a_node_that_the_ledger_does_not_have_says_so() -> None:
    engine = Engine(FakeLedger(), EVERY)
    assert list_reasons(engine, ["new"]) == {"new": "node not seen yet"}
    assert engine.evaluate_node("new", pod_request(), "p") == Unfit(UnfitReason.NOT_SEEN)


def test_a_changed_node_is_evaluated_again() -> None:
    ledger = FakeLedger([snapshot_node()])
    engine = Engine(ledger, EVERY)
    assert list_reasons(engine, ["n"]) == {"n": ""}
    ledger.put(snapshot_node(used=(16, 16)))
    assert list_reasons(engine, ["n"]) == {"n": "no card with enough free memory"}
    ledger.put(snapshot_node())
    assert list_reasons(engine, ["n"]) == {"n": ""}


def test_a_node_that_went_and_came_back_is_evaluated_again() -> None:
    ledger = FakeLedger([snapshot_node()])
    engine = Engine(ledger, EVERY)
    list_reasons(engine, ["n"])
    ledger.take("n")
    assert list_reasons(engine, ["n"]) == {"n": "node not seen yet"}
    ledger.put(snapshot_node(used=(16, 16)))
    assert list_reasons(engine, ["n"]) == {"n": "no card with enough free memory"}


def test_an_unchanged_node_is_not_looked_at_again() -> None:
    """Seen by a ledger that changes a node and, against its contract, does not say so."""
    ledger = FakeLedger([snapshot_node()])
    engine = Engine(ledger, EVERY)
    list_reasons(engine, ["n"])
    ledger.nodes["n"] = snapshot_node(used=(16, 16))
    assert list_reasons(engine, ["n"]) == {"n": ""}


def test_a_change_is_followed_once() -> None:
    ledger = FakeLedger([snapshot_node("a")])
    engine = Engine(ledger, EVERY)
    for name in ("b", "c"):
        list_reasons(engine, [name])
        before = ledger.generation
        ledger.put(snapshot_node(name))
        ledger.asked.clear()
        list_reasons(engine, [name])
        assert ledger.asked == [before, before]  # for the summaries, and for the table


def test_a_ledger_that_has_forgotten_its_changes_is_looked_at_whole() -> None:
    ledger = FakeLedger([snapshot_node("a"), snapshot_node("b")])
    engine = Engine(ledger, EVERY)
    list_reasons(engine, ["a", "b"])
    ledger.take("a")
    ledger.put(snapshot_node("b", used=(16, 16)))
    ledger.is_forgetful = True
    assert list_reasons(engine, ["a", "b"]) == {"a": "node not seen yet", "b": "no card with enough free memory"}


def test_deleted_nodes_do_not_pile_up() -> None:
    """An autoscaler makes and removes nodes for ever."""
    ledger = FakeLedger()
    engine = Engine(ledger, EVERY)
    for number in range(50):
        ledger.put(snapshot_node(f"n{number}"))
        assert engine.rank_nodes([f"n{number}"], pod_request(4), "p", 3) == [f"n{number}"]
        ledger.take(f"n{number}")
    list_reasons(engine, ["n0"])
    (table,) = engine._tables.values()
    assert (len(engine._summaries), len(table._fitting), len(table._get_buckets())) == (0, 0, 0)


def test_another_shape_or_policy_is_another_answer() -> None:
    engine = Engine(FakeLedger([snapshot_node(used=(10, 4))]), EVERY)
    taken = {
        (units, policy): engine.evaluate_node("n", pod_request(units, annotations={"vrampack.dev/policy": policy}), "p")
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


def indices(evaluation: Evaluation) -> list[int]:
    return [card.index for card in evaluation.cards] if isinstance(evaluation, ScoredCards) else []


def test_what_one_pod_finds_is_no_answer_to_another() -> None:
    """Its own reservation is free for it alone."""
    ledger = FakeLedger([snapshot_node("full", used=(16, 16)), snapshot_node("open", used=(0, 0))])
    ledger.private["full", "mine"] = snapshot_node("full", used=(12, 16))
    engine = Engine(ledger, EVERY)
    names = ["full", "open"]
    for _ in range(2):
        assert list_reasons(engine, names, uid="mine") == {"full": "", "open": ""}
        assert engine.rank_nodes(names, pod_request(), "mine", 2) == ["full", "open"]  # 4 free against 16: tighter
        assert list_reasons(engine, names, uid="other") == {"full": "no card with enough free memory", "open": ""}
        assert engine.rank_nodes(names, pod_request(), "other", 2) == ["open"]
    del ledger.private["full", "mine"]
    assert list_reasons(engine, names, uid="mine") == {"full": "no card with enough free memory", "open": ""}


def test_more_shapes_than_are_kept_are_answered_all_the_same() -> None:
    node = snapshot_node(units=(2 * CACHED_TABLES,))
    engine = Engine(FakeLedger([node]), EVERY)
    for _ in range(2):
        for units in range(1, 2 * CACHED_TABLES + 2):
            fits = isinstance(evaluate_node(node, CardRequest(units), "binpack"), ScoredCards)
            assert list_reasons(engine, ["n"], pod_request(units)) == {"n": "" if fits else "larger than any card"}


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
    assert Engine(FakeLedger(), tuning).choose_policy(pod_request(annotations={"vrampack.dev/policy": wish})) == want


@pytest.mark.parametrize(
    "text", ['{"default":"best"}', '{"allowed":["best"]}', '{"allowed":"spread"}', '{"weights":{}}']
)
def test_tuning_is_strict(text: str) -> None:
    with pytest.raises(ValidationError):
        PolicyTuning.model_validate_json(text)


PLAIN = request_strategy().filter(is_plain_request)


@PATIENT
@given(node_strategy(), PLAIN)
def test_an_equivalence_class_gives_the_reason_that_the_cards_give(node: Node, request: CardRequest) -> None:
    """Sorted numbers against going through the cards."""
    fitting = find_fitting_cards(node, request)
    want = fitting.reason if isinstance(fitting, Unfit) else None
    assert (
        find_equivalence_class(summarize_node(node), request.count, whole=request.whole).find_obstacle(request) == want
    )


@PATIENT
@given(node_strategy(), PLAIN, st.sampled_from(sorted(POLICIES)))
def test_a_score_from_a_summary_is_the_policys_own(node: Node, request: CardRequest, policy: PolicyName) -> None:
    evaluation = evaluate_node(node, request, policy)
    if isinstance(evaluation, ScoredCards):
        assert dict(POLICIES[policy].score_nodes([("n", summarize_node(node))], request)) == {"n": evaluation.score}


Step = tuple[dict[str, Node], set[str], int, PolicyName, list[str], int]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcde"), node_strategy(), max_size=4),
        st.sets(st.sampled_from("abcde"), max_size=1),
        st.integers(0, 2),
        st.sampled_from(sorted(POLICIES)),
        st.lists(st.sampled_from("abcdefg"), max_size=7),
        st.integers(1, 4),
    ),
    max_size=10,
)


@PATIENT
@given(STEPS, st.lists(request_strategy(), min_size=3, max_size=3))
def test_the_engine_says_what_the_plain_way_says(steps: list[Step], shapes: list[CardRequest]) -> None:
    """However the cluster changes between questions, and whichever questions come back."""
    ledger = FakeLedger()
    engine = Engine(ledger, EVERY)
    for changes, gone, at, policy, names, count in steps:
        ledger.put(*(replace(node, name=name) for name, node in changes.items()))
        for name in gone & ledger.list_node_names():
            ledger.take(name)
        ask = build_pod_request(shapes[at], policy)
        plain = {name: evaluate_node(ledger.get_node(name), shapes[at], policy) for name in names}
        reasons = {name: each.reason for name, each in plain.items() if isinstance(each, Unfit)}
        outcome = engine.filter_nodes(names, ask, "p")
        assert outcome.passed == [name for name in plain if name not in reasons]
        assert outcome.unschedulable == {name: why.value for name, why in reasons.items() if not why.is_unresolvable}
        assert outcome.unresolvable == {name: why.value for name, why in reasons.items() if why.is_unresolvable}
        assert engine.rank_nodes(outcome.passed, ask, "p", count) == sort_by_score(plain)[:count]
        assert {name: engine.evaluate_node(name, ask, "p") for name in names} == plain


def build_pod_request(request: CardRequest, policy: PolicyName) -> PodRequest:
    return PodRequest(request, (ContainerRequest("main", "main", 0, request.units * request.count),), policy)
