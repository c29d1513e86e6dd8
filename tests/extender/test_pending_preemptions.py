"""From preempt's answer on, the card of its victims is kept: the API may show the nomination only after they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from extender.rule_settings import RuleSettings
from extender.state.pending_preemptions import MAX_IMMEDIATE_NODES, MAX_PENDING, PENDING_SECONDS
from policies.engine.engine import VerdictKey
from tests.extender.activator_harness import ActivatorHarness
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod, node_facts, pod_request
from tests.support.call_counter import count_calls
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest


async def start_preemption(*nodes: str, priority: int = 10) -> SchedulerHarness:
    """One card on each node, full of a victim, and `urgent`, for which preempt has named all of them."""
    desk = SchedulerHarness({name: [15] for name in nodes})
    for name in nodes:
        desk.add_bound_pod(f"on-{name}", name, 15)
    desk.add_pending_pod("urgent", 15, priority=priority)
    victims = {name: [f"on-{name}"] for name in nodes}
    assert await desk.preempt("urgent", 15, victims) == victims
    return desk


async def test_the_card_is_kept_before_the_nomination_is_seen() -> None:
    desk = await start_preemption("a")
    desk.ledger.remove_pod("on-a")
    for name, priority, passed in (("lower", 9, []), ("equal", 10, []), ("higher", 11, ["a"])):
        desk.add_pending_pod(name, priority=priority)
        assert desk.filter_names(name) == passed
        assert bool(desk.choose_cards(name, "a")) == bool(passed)  # bind decides alike
    assert desk.filter_names("urgent", 15) == ["a"]


async def test_the_card_is_kept_for_a_preemptor_not_yet_in_our_watch() -> None:
    desk = SchedulerHarness({"a": [15]})
    desk.add_bound_pod("on-a", "a", 15)
    await desk.preempt("urgent", 15, {"a": ["on-a"]}, priority=10)
    desk.ledger.remove_pod("on-a")
    assert desk.filter_names(desk.add_pending_pod("small", priority=10).name) == []
    desk.add_pending_pod("urgent", 15, priority=10)
    assert desk.filter_names("small") == []
    desk.ledger.remove_pod("urgent")
    assert desk.filter_names("small") == ["a"]


async def test_room_of_the_first_victim_is_kept_while_the_next_one_still_runs() -> None:
    desk = SchedulerHarness({"a": [15]})
    desk.add_bound_pod("first", "a", 8)
    desk.add_bound_pod("second", "a", 7)
    urgent = desk.add_pending_pod("urgent", 15, priority=10)
    await desk.preempt("urgent", 15, {"a": ["first", "second"]})
    desk.ledger.remove_pod("first")
    assert desk.filter_names("small") == []
    desk.ledger.update_pod(replace(urgent, nominated_node="a"))
    assert desk.filter_names("small") == []


async def test_a_card_with_some_room_is_not_filled_up_before_its_victims_go() -> None:
    desk = SchedulerHarness({"a": [15]})
    desk.add_bound_pod("victim", "a", 10)
    desk.add_pending_pod("urgent", 15, priority=10)
    assert desk.filter_names("small") == ["a"]
    await desk.preempt("urgent", 15, {"a": ["victim"]})
    assert desk.filter_names("small") == []


async def test_no_pod_is_evicted_for_a_card_that_is_kept_for_another() -> None:
    """Otherwise the victims of one card would make room for two pods, and the first to retry would get it."""
    desk = await start_preemption("a")
    for name, priority, answer in (("lower", 9, {}), ("equal", 10, {}), ("higher", 11, {"a": ["on-a"]})):
        desk.add_pending_pod(name, priority=priority)
        assert await desk.preempt(name, 4, {"a": ["on-a"]}) == answer


async def test_other_cards_of_a_node_with_a_kept_card_can_be_preempted() -> None:
    """The proposal stays as it is, so the pod on card 1 is added to it."""
    desk = SchedulerHarness({"a": [15, 15]})
    desk.add_bound_pod("first", "a", 15, card=0)
    desk.add_bound_pod("second", "a", 14, card=1)
    for name in ("urgent", "other"):
        desk.add_pending_pod(name, 15, priority=10)
    await desk.preempt("urgent", 15, {"a": ["first"]})
    assert await desk.preempt("other", 15, {"a": ["first"]}) == {"a": ["first", "second"]}


async def two_cards(*, nominated: bool) -> tuple[SchedulerHarness, Pod]:
    """Card 0 is full of a victim for `urgent`, card 1 of a pod that goes by itself; then both are gone."""
    desk = SchedulerHarness({"a": [15, 15]})
    desk.add_bound_pod("victim", "a", 15, card=0)
    desk.add_bound_pod("other", "a", 15, card=1)
    urgent = desk.add_pending_pod("urgent", 15, priority=10)
    await desk.preempt("urgent", 15, {"a": ["victim"]})
    if nominated:
        desk.ledger.update_pod(replace(urgent, nominated_node="a"))
    desk.ledger.remove_pod("victim")
    desk.ledger.remove_pod("other")
    return desk, urgent


@pytest.mark.parametrize("nominated", [False, True])
async def test_one_card_is_kept_with_or_without_a_nomination(nominated: bool) -> None:  # noqa: FBT001 - pytest names it
    desk, _ = await two_cards(nominated=nominated)
    assert desk.choose_cards("small", "a") == [1]


async def test_a_preemptor_with_a_reservation_is_counted_once() -> None:
    desk, urgent = await two_cards(nominated=False)
    desk.ledger.assume(urgent, "a", desk.allocation(urgent, "a", 0))
    assert desk.choose_cards("small", "a", 15) == [1]


async def test_a_card_kept_for_a_whole_card_request_is_kept_entirely() -> None:
    """The pod requests 4 units of the card; no other pod may take the 11 beside them."""
    desk = SchedulerHarness({"a": [15]}, rules=RuleSettings(whole_cards="as-requested"))
    desk.add_bound_pod("victim", "a", 15)
    desk.ledger.update_pod(ledger_pod("urgent", ask=pod_request(4, whole=True), priority=10))
    await desk.preempt("urgent", 4, {"a": ["victim"]})
    desk.add_pending_pod("other", 11, priority=10)
    assert await desk.preempt("other", 11, {"a": ["victim"]}) == {}


async def test_the_expiry_of_a_preemption_is_scheduled_at_once() -> None:
    """Nothing else may happen until its time is over."""
    desk = SchedulerHarness({"a": [15]})
    desk.add_bound_pod("on-a", "a", 15)
    kicker = desk.parts.activator
    kicker.next_round_at = desk.seconds + 99
    runner = asyncio.create_task(kicker.run())
    await until(lambda: kicker.next_round_at is None)  # the round for the node that came
    await desk.preempt("urgent", 15, {"a": ["on-a"]}, priority=10)
    await until(lambda: kicker.next_round_at == desk.seconds + 0.5)
    runner.cancel()
    await asyncio.wait([runner])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - there is no event to await
            await asyncio.sleep(0)


async def test_among_equal_pods_the_preemptor_is_woken_first() -> None:
    stage = ActivatorHarness("n")
    stage.add_rejected_pod("older", created="1")
    stage.evictions.add_preemption(stage.add_rejected_pod("urgent", created="2"), {"n": ["on-n"]}, ())
    stage.free_node("n")
    assert await stage.run_round() == ["urgent"]


async def test_a_nomination_to_one_of_the_nodes_frees_the_others() -> None:
    desk = await start_preemption("a", "b")
    for name in ("a", "b"):
        desk.ledger.remove_pod(f"on-{name}")
    assert desk.filter_names("small") == []
    before = desk.ledger.capacity_generation
    urgent = desk.ledger.get_pod("urgent")
    assert urgent is not None
    desk.ledger.update_pod(replace(urgent, nominated_node="a"))
    assert desk.filter_names("small") == ["b"]
    await desk.parts.activator.choose_activations()
    assert [node.name for _, node in desk.ledger.nodes.list_nodes_gained_since(before)] == ["b"]


async def test_an_earlier_nomination_does_not_end_a_later_preemption() -> None:
    """The ledger may learn of it after the answer, from a watch that is late."""
    desk = SchedulerHarness({"a": [15], "b": [15]})
    desk.add_bound_pod("on-a", "a", 15)
    desk.add_bound_pod("on-b", "b", 15)
    urgent = desk.add_pending_pod("urgent", 15, priority=10)
    await desk.preempt("urgent", 15, {"a": ["on-a"]}, nominated_node="b")
    desk.ledger.update_pod(replace(urgent, nominated_node="b"))
    desk.ledger.remove_pod("on-a")
    assert desk.filter_names("small") == []


def pass_time(desk: SchedulerHarness) -> None:
    desk.seconds += PENDING_SECONDS


ENDS: dict[str, Callable[[SchedulerHarness], object]] = {
    "time": pass_time,
    "deleted": lambda desk: desk.ledger.remove_pod("urgent"),
    "leaving": lambda desk: desk.ledger.update_pod(replace(desk.add_pending_pod("urgent", 15), is_terminating=True)),
    "bound elsewhere": lambda desk: desk.add_bound_pod("urgent", "b", 15),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_the_end_of_a_preemption_wakes_waiting_pods(end: Callable[[SchedulerHarness], object]) -> None:
    """They were refused for it, and nothing else will wake them; the kicker looks until it has ended."""
    desk = await start_preemption("a")
    desk.ledger.remove_pod("on-a")
    await desk.parts.activator.choose_activations()
    assert desk.parts.activator.next_round_at == desk.seconds + 0.5
    assert desk.filter_names("small") == []
    before = desk.ledger.capacity_generation
    end(desk)
    await desk.parts.activator.choose_activations()
    assert [node.name for _, node in desk.ledger.nodes.list_nodes_gained_since(before)] == ["a"]
    assert desk.filter_names("small") == ["a"]
    assert desk.parts.activator.next_round_at != desk.seconds + 0.5


async def test_among_many_nodes_only_those_with_a_terminating_victim_are_kept() -> None:
    names = [f"n{at:02}" for at in range(MAX_IMMEDIATE_NODES + 1)]
    desk = await start_preemption(*names)
    assert desk.parts.engine.find_verdict_key(pod_request(), "small") == VerdictKey(CardRequest(4), None, 0)
    desk.add_bound_pod("on-n03", "n03", 15, leaving=True)
    assert desk.parts.engine.find_verdict_key(pod_request(), "small") == VerdictKey(CardRequest(4), 10, 1)
    for name in ("n03", "n04"):
        desk.ledger.remove_pod(f"on-{name}")
    assert desk.filter_names("small") == []


async def test_an_answer_with_many_victims_costs_the_next_pod_nothing() -> None:
    """Preempt itself looks at them slice by slice; any other verb would do it in one turn of the loop."""
    names = [f"n{at:03}" for at in range(200)]
    desk = await start_preemption(*names)
    desk.filter_names("small")
    victims = {name: [f"on-{name}"] for name in names}
    assert await desk.preempt("urgent", 15, victims) == victims
    generation = desk.ledger.generation
    assert count_calls(desk.parts.engine.find_verdict_key, pod_request(), "small") < len(names)
    assert desk.ledger.generation == generation  # no node is another one, so none is looked at again


async def test_the_node_limit_counts_the_nodes_of_all_pending_preemptions() -> None:
    """A nomination reduces a preemption to the one node that it names."""
    names = [f"n{at:02}" for at in range(MAX_IMMEDIATE_NODES)]
    desk = await start_preemption(*names)
    desk.put_node(node_facts("a", 15))
    desk.add_bound_pod("on-a", "a", 10)
    desk.add_pending_pod("second", 15, priority=10)
    await desk.preempt("second", 15, {"a": ["on-a"]})
    assert desk.filter_names("small", names=["a"]) == ["a"]
    urgent = desk.ledger.get_pod("urgent")
    assert urgent is not None
    desk.ledger.update_pod(replace(urgent, nominated_node="n03"))
    await desk.preempt("second", 15, {"a": ["on-a"]})
    assert desk.filter_names("small", names=["a"]) == []


async def test_remembered_preemptions_are_bounded() -> None:
    desk = SchedulerHarness({f"n{at}": [15] for at in range(MAX_PENDING + 1)})
    for at in range(MAX_PENDING + 1):
        desk.add_bound_pod(f"on-n{at}", f"n{at}", 15)
        desk.add_pending_pod(f"urgent-{at}", 15, priority=10)
        await desk.preempt(f"urgent-{at}", 15, {f"n{at}": [f"on-n{at}"]})
    for at in range(MAX_PENDING + 1):
        desk.ledger.remove_pod(f"on-n{at}")
    assert desk.filter_names("small") == ["n0"]
