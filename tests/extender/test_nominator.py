"""A nominated pod keeps its card: the scheduler evicted others for it and protects only the sum of its node."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from extender.policy_settings import PolicyTuning
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from policies.engine.engine import Engine
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod, node_facts, pod_request
from vrampack.cards.fit import Unfit
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod

NO_ROOM = "no card with enough free memory"


def nominate(desk: SchedulerHarness, name: str, node: str, units: int = 15, *, priority: int = 10) -> Pod:
    pod = replace(ledger_pod(name, units=units, priority=priority), nominated_node=node)
    desk.ledger.update_pod(pod)
    return pod


def test_a_nominees_card_is_kept_from_lower_and_equal_priority_only() -> None:
    desk = SchedulerHarness({"a": [15]})
    nominate(desk, "urgent", "a")
    for name, priority, passed in (("lower", 9, []), ("equal", 10, []), ("higher", 11, ["a"])):
        desk.add_pending_pod(name, priority=priority)
        answer = desk.post_filter(name)
        assert (answer["NodeNames"], answer["FailedNodes"]) == (passed, {} if passed else {"a": NO_ROOM})
        assert bool(desk.choose_cards(name, "a")) == bool(passed)  # bind decides alike
    assert desk.filter_names("urgent", 15) == ["a"]


@pytest.mark.parametrize(("priority", "passed"), [(9, []), (10, []), (11, ["a"]), (-1, [])])
@pytest.mark.parametrize("nominee", [10, -1])
async def test_a_pod_not_yet_in_our_watch_has_its_own_priority(nominee: int, priority: int, passed: list[str]) -> None:
    """The verbs then answer as they will once the watch shows it: bind reads the pod, the others have it in their calls."""
    desk = SchedulerHarness({"a": [15]})
    nominate(desk, "urgent", "a", priority=nominee)
    passed = passed if nominee > 0 or priority == -1 else ["a"]
    spec = {"priority": priority}
    assert desk.filter_names("unseen", spec=spec) == passed
    ranked = json.loads(desk.parts.verbs.prioritize(desk.encode_call("unseen", spec=spec)).body)
    assert [each["Host"] for each in ranked] == passed
    desk.filter_names("another", spec={"priority": 0})
    assert (await desk.bind("unseen", "a", spec) == "") == bool(passed)
    desk.add_pending_pod("unseen", priority=priority)
    assert desk.filter_names("unseen") == passed


def test_only_the_card_is_kept_not_the_node() -> None:
    desk = SchedulerHarness({"a": [15, 15]})
    nominate(desk, "urgent", "a")
    assert desk.choose_cards("small", "a") == [1]
    assert desk.filter_and_prioritize("small") == "a"


def test_units_of_terminating_pods_go_to_the_nominee() -> None:
    """Card 0 is full of a victim that is leaving; card 1 has 5 free, too few for the nominee, enough for others."""
    desk = SchedulerHarness({"a": [15, 15]})
    desk.add_bound_pod("victim", "a", 15, card=0, leaving=True)
    desk.add_bound_pod("other", "a", 10, card=1)
    nominate(desk, "urgent", "a")
    assert desk.choose_cards("small", "a") == [1]
    desk.ledger.remove_pod("victim")
    assert desk.choose_cards("small", "a") == [1]
    assert desk.filter_names("medium", 6) == []
    assert desk.choose_cards("urgent", "a", 15) == [0]


def test_nominees_of_one_node_keep_a_card_each_and_do_not_lock_each_other_out() -> None:
    desk = SchedulerHarness({"a": [15, 15]})
    nominate(desk, "first", "a", priority=10)
    nominate(desk, "second", "a", priority=10)
    assert desk.filter_names("other") == []
    assert desk.filter_names("first", 15) == ["a"]
    assert desk.filter_names("second", 15) == ["a"]


def test_the_more_important_of_two_nominees_keeps_the_card() -> None:
    desk = SchedulerHarness({"a": [15]})
    nominate(desk, "second", "a", priority=10)
    nominate(desk, "first", "a", priority=11)
    assert desk.filter_names("first", 15) == ["a"]
    assert desk.filter_names("second", 15) == []


def test_a_nominee_that_will_find_no_card_keeps_none_from_others() -> None:
    desk = SchedulerHarness({"a": [15]})
    desk.add_bound_pod("staying", "a", 8)
    nominate(desk, "urgent", "a")
    assert desk.filter_names("small") == ["a"]


def test_a_nominee_with_a_reservation_is_counted_once() -> None:
    desk = SchedulerHarness({"a": [15, 15]})
    pod = nominate(desk, "urgent", "a")
    node = desk.ledger.get_node("a")
    assert node is not None
    assert pod.request is not None
    desk.ledger.assume(pod, "a", desk.allocation(pod, "a", 0))
    assert desk.choose_cards("small", "a", 15) == [1]


ENDS: dict[str, Callable[[SchedulerHarness, Pod], object]] = {
    "taken back": lambda desk, pod: desk.ledger.update_pod(replace(pod, nominated_node="")),
    "another node": lambda desk, pod: desk.ledger.update_pod(replace(pod, nominated_node="b")),
    "deleted": lambda desk, pod: desk.ledger.remove_pod(pod.uid),
    "leaving": lambda desk, pod: desk.ledger.update_pod(replace(pod, is_terminating=True)),
    "bound elsewhere": lambda desk, pod: desk.add_bound_pod(pod.name, "b", 15),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_end_of_a_nomination_wakes_waiting_pods(end: Callable[[SchedulerHarness, Pod], object]) -> None:
    """They were refused for it, and nothing else will wake them."""
    desk = SchedulerHarness({"a": [15], "b": [15]})
    pod = nominate(desk, "urgent", "a")
    assert desk.filter_names("small", names=["a"]) == []
    before = desk.ledger.capacity_generation
    end(desk, pod)
    assert [node.name for _, node in desk.ledger.nodes.list_nodes_gained_since(before)] == ["a"]
    assert desk.filter_names("small", names=["a"]) == ["a"]


def test_a_nomination_outlives_its_node() -> None:
    desk = SchedulerHarness({"a": [15]})
    pod = nominate(desk, "urgent", "a")
    desk.ledger.remove_node("a")
    assert desk.filter_names("small") == []
    assert desk.filter_names("urgent", 15) == []
    desk.put_node(node_facts("a", 15))
    assert desk.filter_names("small") == []
    desk.ledger.remove_pod(pod.uid)
    assert desk.filter_names("small") == ["a"]
    assert not desk.ledger.nominations.list_nodes()


def count_searches(desk: SchedulerHarness, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes on which cards were looked for, for a nominee, from now on."""
    searched: list[str] = []
    build = desk.ledger.build_node_after_terminations

    def record_search(name: str, victim_uids: Collection[str] = ()) -> Node | None:
        searched.append(name)
        return build(name, victim_uids)

    monkeypatch.setattr(desk.ledger, "build_node_after_terminations", record_search)
    return searched


def test_kept_cards_are_computed_once_for_each_state_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not for every pod that asks: hundreds of nominees would cost each filter tens of milliseconds."""
    names = [f"n{at}" for at in range(20)]
    desk = SchedulerHarness({name: [15, 15] for name in names})
    for name in names:
        nominate(desk, f"urgent-{name}", name)
    searched = count_searches(desk, monkeypatch)
    for at in range(10):
        assert desk.filter_names(f"p{at}", 5 + at) == names
        assert desk.choose_cards(f"p{at}", "n3", 15) == [1]
    assert sorted(searched) == sorted(names)
    searched.clear()
    desk.add_bound_pod("other", "n7", 15, card=1)
    assert desk.filter_names("p") == [name for name in names if name != "n7"]
    assert searched == ["n7"]


def test_pods_that_no_nominee_affects_share_an_answer() -> None:
    """A nominee somewhere is no reason to evaluate all nodes for every rejected pod."""
    desk = SchedulerHarness({name: [15] for name in "ab"})
    for name in "ab":
        nominate(desk, f"urgent-{name}", name)
    first = desk.post_filter("p")
    again = desk.post_filter("q", names=["b", "a"])
    assert first["FailedNodes"] == again["FailedNodes"] == {"a": NO_ROOM, "b": NO_ROOM}
    assert list(again["FailedNodes"]) == ["a", "b"]  # the ready one: made again, it would follow the names


def test_a_different_kept_card_invalidates_cached_answers() -> None:
    """The victim on card 1 is leaving, so the nominee will fit tighter there: card 0 is free again, and no node gained room."""
    desk = SchedulerHarness({"a": [15, 12]})
    desk.add_bound_pod("victim", "a", 12, card=1)
    nominate(desk, "urgent", "a", 12)
    assert desk.filter_names("p", 15) == []
    desk.add_bound_pod("victim", "a", 12, card=1, leaving=True)
    assert desk.filter_names("p", 15) == ["a"]


@pytest.mark.parametrize("seed", range(10))
def test_after_any_changes_the_nominator_agrees_with_a_new_one(seed: int) -> None:
    """The nominator only caches what follows from the ledger."""
    rng = random.Random(seed)
    names = ["a", "b", "c"]
    desk = SchedulerHarness({name: [15, 8] for name in names})
    for step in range(150):
        name, number = rng.choice(names), rng.randrange(6)
        match rng.choice(("nominate", "nominate", "bind", "leave", "end", "node", "gone", "pend")):
            case "nominate":
                nominate(desk, f"p{number}", name, rng.randint(1, 15), priority=rng.randint(0, 3))
            case "bind" | "leave" as change:
                desk.add_bound_pod(
                    f"p{number}", name, rng.randint(1, 8), card=rng.randrange(2), leaving=change == "leave"
                )
            case "end":
                desk.ledger.remove_pod(f"p{number}")
            case "node":
                desk.put_node(node_facts(name, rng.choice((8, 15)), 8))
            case "gone":
                desk.ledger.remove_node(name)
            case "pend":
                desk.add_pending_pod(f"p{number}", priority=rng.randint(0, 3))
        fresh = Engine(Nominator(desk.ledger, PendingPreemptions(desk.ledger, clock=desk.clock)), PolicyTuning())
        for uid in ("p0", "p1", "unseen"):
            units = rng.randint(1, 15)
            plain = {each: fresh.evaluate_node(each, pod_request(units), uid) for each in names}
            fitting = [each for each in names if not isinstance(plain[each], Unfit)]
            pod = desk.ledger.get_pod(uid)
            if pod is None or not pod.node_name:
                assert desk.filter_names(uid, units) == fitting, (seed, step)
