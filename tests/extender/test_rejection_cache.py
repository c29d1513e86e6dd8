"""A cached rejection is reused for the same nodes while none has gained room, and never once one has."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from policies.evaluate import evaluate_node
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import node_facts, pod_request
from vrampack.cards.fit import Unfit
from vrampack.cards.node import NodeFacts
from vrampack.cards.tuned_policy import TunedPolicy

NAMES = [f"n{number}" for number in range(6)]


def full() -> SchedulerHarness:
    desk = SchedulerHarness({name: [15] for name in NAMES})
    for name in NAMES:
        desk.add_bound_pod(f"on-{name}", name, 12)
    return desk


def count_kept_answers(desk: SchedulerHarness) -> int:
    """How many answers have been kept."""
    return len(desk.parts.verbs._rejections)


def count_rejected_nodes(desk: SchedulerHarness) -> int:
    return int(desk.metrics.rejected_nodes.labels("no card with enough free memory")._value.get())


def test_the_order_of_node_names_does_not_matter() -> None:
    desk = full()
    first = desk.post_filter("p")
    again = desk.post_filter("q", names=NAMES[::-1])
    assert (first["NodeNames"], first["FailedNodes"]) == (again["NodeNames"], again["FailedNodes"])
    assert list(again["FailedNodes"]) == NAMES  # the ready one: made again, it would follow the names
    assert count_rejected_nodes(desk) == 2 * len(NAMES)


@pytest.mark.parametrize("names", [NAMES[:-1], [*NAMES[:-1], "other"], [*NAMES, "other"], []], ids=len)
def test_a_filter_of_other_node_names_answers_for_those_names(names: list[str]) -> None:
    desk = full()
    desk.post_filter("p")
    assert set(desk.post_filter("p", names=names or ["other"])["FailedNodes"]) == set(names or ["other"])


def test_taken_room_keeps_a_cached_rejection() -> None:
    desk = full()
    first = desk.post_filter("p")
    desk.add_bound_pod("more", "n0", 2)
    assert desk.post_filter("p", names=NAMES[::-1]) == first


def test_gained_room_ends_a_cached_rejection() -> None:
    desk = full()
    assert desk.filter_names("p") == []
    desk.ledger.remove_pod("on-n3")
    assert desk.filter_names("p") == ["n3"]


def test_each_request_size_has_its_own_answer() -> None:
    desk = full()
    assert desk.filter_names("p", 4) == []
    assert desk.filter_names("p", 3) == NAMES
    assert desk.filter_names("p", 4) == []


def test_an_unknown_node_is_not_cached_as_unknown() -> None:
    desk = full()
    assert desk.post_filter("p", names=["new"])["FailedNodes"] == {"new": "node not seen yet"}
    assert count_kept_answers(desk) == 0
    desk.put_node(node_facts("new", 2))
    assert desk.post_filter("p", names=["new"])["FailedAndUnresolvableNodes"] == {"new": "larger than any card"}
    assert count_kept_answers(desk) == 1


def test_the_answer_for_a_pod_with_a_reservation_is_not_shared() -> None:
    """Its reservation on `n0` is free for it alone, whatever other pods were or will be answered."""
    desk = full()
    assert desk.filter_names("other") == []
    desk.ledger.remove_pod("on-n0")
    mine = desk.add_pending_pod("mine", 15)
    desk.ledger.assume(mine, "n0", desk.allocation(mine, "n0", 0))
    assert desk.filter_names("other") == []
    assert desk.filter_names("mine", 15) == ["n0"]
    assert desk.filter_names("other") == []


SMALL, DAMAGED = node_facts("n3", 2), replace(node_facts("n3", 15), problem="its annotation is damaged")
UNKNOWN = replace(node_facts("n3", 15), injection=None)
CHANGED: dict[str, tuple[NodeFacts, Callable[[SchedulerHarness], object]]] = {
    "a larger card, full of a pod": (SMALL, lambda desk: desk.put_node(node_facts("n3", 15))),
    "its annotation is mended": (DAMAGED, lambda desk: desk.put_node(node_facts("n3", 15))),
    "another injection": (UNKNOWN, lambda desk: desk.put_node(node_facts("n3", 15))),
    "the node is gone": (SMALL, lambda desk: desk.ledger.remove_node("n3")),
}


@pytest.mark.parametrize(("before", "change"), CHANGED.values(), ids=CHANGED)
def test_a_node_is_no_longer_unresolvable_once_its_reason_is_resolvable(
    before: NodeFacts, change: Callable[[SchedulerHarness], object]
) -> None:
    """The scheduler leaves such a node out when it looks for pods to evict, though no room was gained there."""
    desk = full()
    desk.add_bound_pod("on-n3", "n3", 15)
    desk.put_node(before)
    assert list(desk.post_filter("p")["FailedAndUnresolvableNodes"]) == ["n3"]
    capacity = desk.ledger.capacity_generation
    change(desk)
    assert desk.ledger.capacity_generation == capacity
    assert desk.post_filter("p")["FailedAndUnresolvableNodes"] == {}


@pytest.mark.parametrize("seed", range(20))
def test_after_any_changes_answers_equal_a_plain_evaluation(seed: int) -> None:
    """Compares with an evaluation of every node: the nodes that pass, and the kind of reason of all others."""
    rng = random.Random(seed)
    desk = SchedulerHarness({name: [rng.choice((4, 8, 15))] * rng.choice((1, 2)) for name in NAMES})
    ready = 0
    for step in range(300):
        name = rng.choice(NAMES)
        change = rng.choice(("hold", "hold", "free", "free", "leave", "node", "gone", "none", "none", "none"))
        if change in ("hold", "leave"):
            desk.add_bound_pod(f"pod-{rng.randrange(20)}", name, rng.randint(1, 8), leaving=change == "leave")
        elif change == "free":
            desk.ledger.remove_pod(f"pod-{rng.randrange(20)}")
        elif change == "node":
            desk.put_node(node_facts(name, *[rng.choice((4, 8, 15))] * rng.choice((1, 2))))
        elif change == "gone":
            desk.ledger.remove_node(name)
        units = rng.choice((2, 6, 9, 15))
        names = rng.sample(NAMES, len(NAMES) - rng.choice((0, 0, 0, 1)))
        before = count_kept_answers(desk)
        answer = desk.post_filter(f"asking-{step % 3}", units, names=names)
        plain = {
            each: evaluate_node(desk.ledger.get_node(each), pod_request(units).card_request, TunedPolicy("binpack"))
            for each in names
        }
        fitting = [each for each in names if not isinstance(plain[each], Unfit)]
        assert answer["NodeNames"] == fitting, (seed, step)
        never = {name for name, each in plain.items() if isinstance(each, Unfit) and each.reason.is_unresolvable}
        assert set(answer["FailedAndUnresolvableNodes"]) == never, (seed, step)
        assert set(answer["FailedNodes"]) == set(names) - set(fitting) - never
        ready += not fitting and count_kept_answers(desk) == before
    assert ready > 10
