"""The engine remembers what it may and answers as if it remembered nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.policy_settings import PolicyName, PolicyTuning
from policies.engine.engine import MAX_FLOORS, Engine
from policies.engine.host_rooms import HostRooms
from policies.engine.node_rankings import MAX_RANKINGS
from policies.evaluate import Evaluation, evaluate_node, sort_by_score
from policies.outlook import Outlook
from policies.policy import ScoredCards
from policies.registry import POLICIES
from policies.trial_placement import Placement, hold_on_node
from tests.policies.fake_ledger import FakeLedger
from tests.policies.fake_reservations import FakeReservations
from tests.policies.known_forecast import FORECAST, FREE_ROOM
from tests.policies.tuned_policies import TUNED_POLICIES
from tests.support.builders import pod_request, snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Card, Node, NodeFacts, build_node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest, ContainerRequest, PodRequest, ProfileChoice
from vrampack.cards.tuned_policy import TunedPolicy

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

EVERY = PolicyTuning(allowed=tuple(POLICIES))


def list_reasons(engine: Engine, names: list[str], ask: PodRequest | None = None, uid: str = "p") -> dict[str, str]:
    """The reason for each name, empty where the pod fits."""
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


@pytest.mark.parametrize("policy", POLICIES)
def test_the_first_pod_of_all_finds_its_best_node(policy: PolicyName) -> None:
    engine = Engine(FakeLedger([snapshot_node("a", used=(16, 16)), snapshot_node("b")]), PolicyTuning(default=policy))
    assert engine.rank_nodes({"a", "b"}, pod_request(), "p", 1) == ["b"]


def test_a_node_name_given_twice_is_answered_once() -> None:
    engine = Engine(FakeLedger([snapshot_node("a"), snapshot_node("b", used=(16, 16))]), EVERY)
    outcome = engine.filter_nodes(["a", "b", "a", "b", "c", "c"], pod_request(), "p")
    assert (outcome.passed, list(outcome.unschedulable)) == (["a"], ["b", "c"])


def test_a_node_unknown_to_the_ledger_has_its_own_reason() -> None:
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


def test_a_node_that_was_removed_and_added_is_evaluated_again() -> None:
    ledger = FakeLedger([snapshot_node()])
    engine = Engine(ledger, EVERY)
    list_reasons(engine, ["n"])
    ledger.take("n")
    assert list_reasons(engine, ["n"]) == {"n": "node not seen yet"}
    ledger.put(snapshot_node(used=(16, 16)))
    assert list_reasons(engine, ["n"]) == {"n": "no card with enough free memory"}


def test_an_unchanged_node_is_not_looked_at_again() -> None:
    """Shown by a ledger that changes a node and, against its contract, does not report it."""
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
        assert ledger.asked == [before]


def test_more_floors_than_are_kept_are_still_answered() -> None:
    free, full = snapshot_node("a"), snapshot_node("a", used=(16, 16))
    ledger = FakeLedger([free])
    engine = Engine(ledger, EVERY)
    ledger.floors = {f"p{floor}": floor for floor in range(MAX_FLOORS + 1)}
    for node in (free, full, free):
        ledger.put(replace(node))
        list_reasons(engine, ["a"], uid="p0")
    for uid in ledger.floors:
        list_reasons(engine, ["a"], uid=uid)
    ledger.kept["a", 0] = full
    ledger.put(replace(free))
    assert list_reasons(engine, ["a"], uid="p0") == {"a": "no card with enough free memory"}


def test_a_ledger_without_a_change_history_is_evaluated_completely() -> None:
    ledger = FakeLedger([snapshot_node("a"), snapshot_node("b")])
    engine = Engine(ledger, EVERY)
    list_reasons(engine, ["a", "b"])
    ledger.take("a")
    ledger.put(snapshot_node("b", used=(16, 16)))
    ledger.is_forgetful = True
    assert list_reasons(engine, ["a", "b"]) == {"a": "node not seen yet", "b": "no card with enough free memory"}


def test_deleted_nodes_do_not_pile_up() -> None:
    """An autoscaler makes and removes nodes for ever."""
    ledger = FakeLedger([snapshot_node("kept")])
    engine = Engine(ledger, EVERY)
    for number in range(50):
        ledger.put(snapshot_node(f"n{number}"))
        assert engine.rank_nodes([f"n{number}"], pod_request(4), "p", 3) == [f"n{number}"]
        ledger.take(f"n{number}")
    list_reasons(engine, ["n0"])
    cluster, (index,) = engine._cluster, engine._fits.list_indexes(pod_request().card_request, None)
    assert (len(cluster.nodes), len(cluster.shapes), len(cluster.hardware._hardware)) == (1, 1, 1)
    assert (len(index.classes), len(engine._seen.states)) == (1, 1)


def test_nodes_with_ended_reservations_do_not_pile_up() -> None:
    """Each keeps an old state of a node alive."""
    names = [f"n{number}" for number in range(100)]
    reservations = FakeReservations()
    engine = Engine(FakeLedger(map(snapshot_node, names)), EVERY, reservations)
    for name in names:
        reservations.put("other", Placement(name, (0,)))
        assert engine.rank_nodes(names, pod_request(), "p", 1) == [name]  # 12 free, not 16
    assert list(engine._reserved_nodes._nodes) == list(engine._reserved_nodes.filled.shapes) == names[-1:]


def test_each_request_shape_and_policy_has_its_own_answer() -> None:
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


def test_an_answer_with_a_reservation_is_not_shared() -> None:
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


def test_no_cache_grows_with_what_pods_ask_for() -> None:
    names = [f"n{number}" for number in range(100)]
    engine = Engine(FakeLedger([snapshot_node(name, units=(600,)) for name in names]), EVERY)
    for units in range(1, 500):
        assert engine.filter_nodes(names[:1], pod_request(units), "p").passed == names[:1]
        assert engine.rank_nodes(names, pod_request(units), "p", 1) == names[:1]
        engine.filter_nodes(names[:1], pod_request(annotations={"vrampack.dev/card-model": f"B{units}"}), "p")
    assert len(engine._rankings._rankings) == MAX_RANKINGS
    assert len(engine._fits._indexes) == 2


NOBODYS: dict[str, dict[str, str]] = {
    "cards that are nowhere": {"vrampack.dev/card-uuid": "GPU-none-{}"},
    "models that are nowhere": {"vrampack.dev/card-model": "B{}"},
    "a model, and one that is nowhere": {"vrampack.dev/card-model": "A,B{}"},
    "every model that there is, and one that is nowhere": {"vrampack.dev/card-model": "A,C,B{}"},
    "a card, and one that is nowhere": {"vrampack.dev/card-uuid": "GPU-1,GPU-none-{}"},
}


@pytest.mark.parametrize("annotations", NOBODYS.values(), ids=NOBODYS)
def test_indistinguishable_requests_share_an_answer(annotations: dict[str, str]) -> None:
    engine = Engine(FakeLedger([snapshot_node(models=("A", "A"))]), EVERY)
    asked = [pod_request(annotations={key: text.format(at) for key, text in annotations.items()}) for at in range(20)]
    answers = [list_reasons(engine, ["n"], each) for each in asked]
    assert all(answer == answers[0] for answer in answers)
    assert len({engine.find_verdict_key(each, "p") for each in asked}) == 1


@pytest.mark.parametrize("ask", [lambda at: pod_request(17 + at), lambda at: pod_request(5 * at, count=at)])
def test_sizes_larger_than_any_card_share_an_answer(ask: Callable[[int], PodRequest]) -> None:
    engine = Engine(FakeLedger([snapshot_node()]), EVERY)
    for at in range(3, 30):
        engine.rank_nodes(["n"], ask(at), "p", 1)
    assert len(engine._rankings._rankings) == 1


def test_a_request_for_given_cards_evaluates_only_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does an invalid one look at any."""
    names = [f"n{number}" for number in range(20)]
    ledger = FakeLedger(
        build_node(NodeFacts(name), (Card(0, 16, 16384, f"GPU-{name}"),), unit_mib=1024) for name in names
    )
    engine = Engine(ledger, EVERY)
    visits: list[str] = []

    def count_visits(node: Node, request: CardRequest) -> tuple[Card, ...] | Unfit:
        visits.append(node.name)
        return find_fitting_cards(node, request)

    monkeypatch.setattr("policies.engine.filter_outcome.find_fitting_cards", count_visits)
    asked = pod_request(annotations={"vrampack.dev/card-uuid": "GPU-n3,GPU-n7,GPU-none"})
    assert engine.filter_nodes(names, asked, "p").passed == ["n3", "n7"]
    assert sorted(visits) == ["n3", "n7"]
    assert not engine.filter_nodes(names, pod_request(labels={"aliyun.com/gpu-count": "x"}), "p").passed
    assert len(visits) == 2


def test_pods_with_the_same_floor_see_the_same_cards_kept() -> None:
    ledger = FakeLedger([snapshot_node("a"), snapshot_node("b")])
    ledger.kept["a", 10] = snapshot_node("a", used=(16, 16))
    ledger.floors = {"low": 10, "lower": 10}
    engine = Engine(ledger, EVERY)
    for uid in ("low", "high", "lower"):
        want = {"a": "" if uid == "high" else "no card with enough free memory", "b": ""}
        assert list_reasons(engine, ["a", "b"], uid=uid) == want
        assert engine.rank_nodes(["a", "b"], pod_request(), uid, 2) == [name for name in "ab" if not want[name]]


WISHES: dict[str, tuple[PolicyTuning, str, PolicyName]] = {
    "none": (EVERY, "", "tessellate"),
    "another default": (PolicyTuning(default="spread"), "", "spread"),
    "allowed": (EVERY, "spread", "spread"),
    "not allowed": (PolicyTuning(allowed=("node-binpack",)), "spread", "tessellate"),
    "nothing is allowed": (PolicyTuning(), "spread", "tessellate"),
    "unknown": (EVERY, "best", "tessellate"),
    "in another case": (EVERY, "Spread", "tessellate"),
    "the default need not be allowed": (PolicyTuning(default="node-binpack", allowed=("spread",)), "x", "node-binpack"),
}


@pytest.mark.parametrize(("tuning", "wish", "want"), WISHES.values(), ids=WISHES)
def test_a_pods_policy_is_used_if_allowed(tuning: PolicyTuning, wish: str, want: PolicyName) -> None:
    assert (
        Engine(FakeLedger(), tuning).choose_policy(pod_request(annotations={"vrampack.dev/policy": wish})).name == want
    )


Step = tuple[dict[str, Node], set[str], int, TunedPolicy, list[str], int, dict[str, HostResources]]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcde"), node_strategy(), max_size=4),
        st.sets(st.sampled_from("abcde"), max_size=1),
        st.integers(0, 2),
        TUNED_POLICIES,
        st.lists(st.sampled_from("abcdefg"), max_size=7),
        st.integers(1, 4),
        st.dictionaries(st.sampled_from("abcde"), FREE_ROOM, max_size=2),
    ),
    max_size=10,
)


@PATIENT
@given(STEPS, st.lists(request_strategy(), min_size=3, max_size=3))
def test_the_engine_agrees_with_a_plain_evaluation(steps: list[Step], shapes: list[CardRequest]) -> None:
    """However the cluster changes between questions, and whichever questions come back."""
    ledger = FakeLedger()
    hosts = HostRooms()
    engine = Engine(ledger, EVERY, hosts=hosts)
    engine.set_forecast(FORECAST)
    for changes, gone, at, policy, names, count, rooms in steps:
        for name, room in rooms.items():
            hosts.put_room(name, room)
        ledger.put(*(replace(node, name=name) for name, node in changes.items()))
        for name in gone & ledger.list_node_names():
            ledger.take(name)
        ask = build_pod_request(shapes[at], policy)
        ranked = engine.rank_nodes(names, ask, "p", count)
        outlook = Outlook(
            FORECAST, hosts.rooms, ask.host, engine.get_outlook(TunedPolicy("sum-of-squares"), None).leftovers
        )
        plain = {name: evaluate_node(ledger.get_node(name), shapes[at], policy, outlook) for name in names}
        reasons = {name: each.reason for name, each in plain.items() if isinstance(each, Unfit)}
        outcome = engine.filter_nodes(names, ask, "p")
        assert outcome.passed == [name for name in plain if name not in reasons]
        assert outcome.unschedulable == {name: why.value for name, why in reasons.items() if not why.is_unresolvable}
        assert outcome.unresolvable == {name: why.value for name, why in reasons.items() if why.is_unresolvable}
        assert ranked == engine.rank_nodes(outcome.passed, ask, "p", count) == sort_by_score(plain)[:count]
        assert {name: engine.evaluate_node(name, ask, "p") for name in names} == plain


@pytest.mark.parametrize(("seed", "policy"), list(enumerate([*map(TunedPolicy, POLICIES)] * 2)))
def test_ranks_beside_soft_reservations_agree_with_a_plain_evaluation(seed: int, policy: TunedPolicy) -> None:
    """Nodes with room beside those of other pods come first, then those with room only in their place, then avoided ones."""
    chance = Random(seed)
    ledger, reservations, hosts = FakeLedger(), FakeReservations(), HostRooms()
    engine = Engine(ledger, EVERY, reservations, hosts=hosts)
    engine.set_forecast(FORECAST)
    held: dict[str, tuple[Placement, CardRequest]] = {}
    for _ in range(150):
        name, owner = chance.choice("abcde"), chance.choice("pqrst")
        request = CardRequest(chance.randint(1, 8), chance.choice((1, 1, 2)), whole=chance.random() < 0.2)
        if chance.random() < 0.6:
            used = [chance.choice((0, 0, 3, 5)) for _ in range(3)]
            ledger.put(snapshot_node(name, units=(8, 8, 6), used=used))
            hosts.put_room(name, HostResources(chance.randrange(0, 9_000), 9_999))
        elif name in ledger.nodes and chance.random() < 0.2:
            ledger.take(name)
        held.pop(owner, None)
        if chance.random() < 0.8:
            held[owner] = Placement(name, tuple(chance.sample(range(3), request.count))), request
        reservations.put(owner, *held.get(owner, (None, request)))
        uid, avoided = chance.choice("pqx"), {chance.choice("abcde"), "f"}
        asked = build_pod_request(CardRequest(chance.randint(1, 8), whole=chance.random() < 0.2), policy)
        ranked = engine.rank_nodes("abcde", asked, uid, count := chance.randint(1, 5), avoided)
        outlook = Outlook(FORECAST, hosts.rooms, asked.host, engine.get_outlook(policy, None).leftovers)
        plain = []
        for node in ledger.nodes.values():
            others = [place for other, place in held.items() if other != uid and place[0].node_name == node.name]
            filled = hold_on_node(node, [(placement.cards, taken) for placement, taken in others])
            alone, beside = (evaluate_node(each, asked.card_request, policy, outlook) for each in (node, filled))
            if isinstance(alone, ScoredCards):
                tier, score = (0, beside.score) if isinstance(beside, ScoredCards) else (1, alone.score)
                plain.append((2 if node.name in avoided else tier, -score, node.name))
        assert ranked == [name for _, _, name in sorted(plain)][:count]


def build_pod_request(request: CardRequest, policy: TunedPolicy) -> PodRequest:
    problem = "" if request.is_valid else "it cannot be"
    containers = (ContainerRequest("main", "main", 0, request.units * request.count),)
    profile = ProfileChoice("any", policy)
    return PodRequest(request, containers, None, problem, HostResources(500, 1024), profile)
