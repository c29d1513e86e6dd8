"""Which pods are activated, when, and how often. The test plays the scheduler; the clock is the harness's."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from extender.requeue import activator, dry_run
from tests.extender.activator_harness import ActivatorHarness
from tests.support.builders import ledger_pod, node_facts, pod_request
from vrampack.cards.node import Share
from vrampack.cards.records import Record
from vrampack.kube.errors import NoAnswerError, RefusedError


@pytest.fixture
def stage() -> ActivatorHarness:
    return ActivatorHarness("n")


async def test_room_that_a_rejected_pod_has_not_seen_activates_it_once(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a")
    assert await stage.run_round() == []
    stage.free_node("n")
    assert await stage.run_round() == ["a"]
    assert await stage.run_round() == []
    assert stage.door.values == ["7-1"]


async def test_a_pod_that_was_never_rejected_is_not_activated(stage: ActivatorHarness) -> None:
    stage.add_pending_pod("a")
    stage.kicker.on_filter_called("vrampack")
    stage.free_node("n")
    assert await stage.run_round() == []


async def test_a_pod_rejected_after_the_room_appeared_is_not_activated(stage: ActivatorHarness) -> None:
    """The scheduler saw the room and called filter; the node was not among those it asked about."""
    stage.add_rejected_pod("a")
    stage.free_node("n")
    stage.reject_pod("a", nodes=["m"])
    assert await stage.run_round() == []


async def test_a_pod_that_passed_filter_meanwhile_is_not_activated(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a")
    stage.free_node("n")
    stage.accept_pod("a")
    assert await stage.run_round() == []


async def test_room_that_is_too_small_wakes_no_pod(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a", 15)
    stage.fill_node("n", 8)
    assert await stage.run_round() == []


async def test_pods_that_fit_together_are_woken_by_priority_then_age_then_uid(stage: ActivatorHarness) -> None:
    """15 units: 5 of `high`, 5 of `old`, then 5 of `b` before `c`; `big` no longer fits and does not keep others out."""
    stage.add_rejected_pod("c", 5, created="2026-01-02T00:00:00Z")
    stage.add_rejected_pod("b", 5, created="2026-01-02T00:00:00Z")
    stage.add_rejected_pod("old", 5, created="2026-01-01T00:00:00Z")
    stage.add_rejected_pod("big", 11, priority=5)
    stage.add_rejected_pod("high", 5, priority=9, created="2026-01-03T00:00:00Z")
    stage.free_node("n")
    assert await stage.run_round() == ["high", "old", "b"]


async def test_an_unused_place_is_offered_to_the_next_pod_after_five_seconds(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a", priority=1)
    stage.add_rejected_pod("b")
    stage.free_node("n")
    assert await stage.run_round() == ["a"]
    stage.seconds += 4.9
    assert await stage.run_round() == []
    stage.seconds += 0.1
    assert await stage.run_round() == ["b"]
    assert stage.count_results("expired") == 1
    assert stage.door.values == ["7-1", "7-2"]


async def test_a_pod_that_is_never_bound_backs_off_longer_each_time(stage: ActivatorHarness) -> None:
    """Kicked at 0, 10, 25, 50, 95, 180, 345: 5 s of trying and 5, 10, 20, 40, 80, 160 s of backing off; then 300 s each."""
    stage.add_rejected_pod("a")
    stage.free_node("n")
    start, times = stage.seconds, []
    for second in range(1000):
        stage.seconds = start + second
        stage.kicker.on_filter_called("vrampack")
        times += [second] * len(await stage.run_round())
    assert times == [0, 10, 25, 50, 95, 180, 345, 650, 955]
    assert len(set(stage.door.values)) == len(times)


async def test_an_activated_pod_rejected_again_gives_up_its_place_at_once(stage: ActivatorHarness) -> None:
    """Somebody else took the room. The pod has seen all there is, so only new room wakes it, and then without delay."""
    stage.add_rejected_pod("a", priority=1)
    stage.add_rejected_pod("b", 7)
    stage.free_node("n")
    assert await stage.run_round() == ["a"]
    stage.fill_node("n", 8)
    stage.reject_pod("a")
    assert await stage.run_round() == ["b"]
    assert stage.count_results("refused") == 1
    stage.ledger.remove_pod("b")
    stage.free_node("n")
    assert await stage.run_round() == ["a"]


async def test_a_node_that_the_scheduler_leaves_out_is_not_offered_again_for_a_while(stage: ActivatorHarness) -> None:
    """`n` is tainted: the scheduler asks about `m` alone. Room on `n` is of no use to the pod, room on `m` is."""
    stage.put_node(node_facts("m", 15))
    stage.fill_node("m")
    stage.add_rejected_pod("a")
    stage.free_node("n")
    assert await stage.run_round() == ["a"]
    stage.reject_pod("a", nodes=["m"])
    stage.fill_node("n", 1)
    stage.free_node("n")
    assert await stage.run_round() == []
    stage.free_node("m")
    assert await stage.run_round() == ["a"]


async def test_a_pod_that_backs_off_comes_after_all_others(stage: ActivatorHarness) -> None:
    stage.put_node(node_facts("m", 15))
    stage.fill_node("m")
    stage.add_rejected_pod("a", priority=9)
    stage.free_node("n")
    assert await stage.run_round() == ["a"]
    stage.reject_pod("a", nodes=["m"])
    stage.add_rejected_pod("b")
    stage.free_node("m")
    assert await stage.run_round() == ["b"]


async def test_the_place_of_an_activated_pod_is_kept_for_it(stage: ActivatorHarness) -> None:
    """Also once it has passed filter, until the ledger counts it: reserved, then bound."""
    first = stage.add_rejected_pod("a", 10, priority=1)
    stage.free_node("n")
    assert await stage.run_round() == ["a"]
    stage.ledger.update_node(node_facts("n", 15, 1))
    stage.add_rejected_pod("b", 10)
    stage.ledger.update_node(node_facts("n", 15, 1, 1))
    assert await stage.run_round() == []
    stage.accept_pod("a")
    stage.ledger.update_node(node_facts("n", 15, 1, 1, 1))
    assert await stage.run_round() == []
    stage.confirm_binding(first, "n")
    stage.add_rejected_pod("c", 5)
    stage.ledger.update_node(node_facts("n", 15, 1, 1, 1, 1))
    stage.ledger.update_node(node_facts("n", 20, 1, 1, 1, 1))
    assert await stage.run_round() == ["b"]
    assert stage.count_results("bound") == 1


async def test_a_reserved_place_counts_once(stage: ActivatorHarness) -> None:
    """`a` holds 8 of 15 by its reservation; counted again for its kick, it would leave no room for 7 more."""
    first = stage.add_rejected_pod("a", 8, priority=1)
    stage.add_rejected_pod("b", 7)
    stage.add_rejected_pod("c", 7)
    stage.free_node("n")
    assert await stage.run_round() == ["a", "b"]
    stage.accept_pod("a")
    stage.assume_pod(first, "n")
    stage.reject_pod("b")
    stage.reject_pod("c")
    stage.put_node(node_facts("n", 15, 1))
    stage.put_node(node_facts("n", 16, 1))
    assert await stage.run_round() == ["b"]


async def test_a_failed_bind_wakes_pods_that_were_rejected_for_its_room(stage: ActivatorHarness) -> None:
    stage.free_node("n")
    binding = stage.add_pending_pod("a")
    stage.assume_pod(binding, "n")
    stage.add_rejected_pod("b")
    assert await stage.run_round() == []
    stage.ledger.forget("a", "n")
    assert await stage.run_round() == ["b"]


@pytest.mark.parametrize("how", ["healed", "uncordoned", "another card", "a node more"])
async def test_room_gained_by_a_node_change_activates_a_pod(how: str) -> None:
    facts = node_facts("n", 15)
    after = {"a node more": node_facts("m", 15), "another card": node_facts("n", 15, 15)}.get(how, facts)
    stage = ActivatorHarness("n")
    if how == "healed":
        stage.free_node("n")
        stage.put_node(replace(facts, cards=(replace(facts.cards[0], healthy=False),)))
    if how == "uncordoned":
        stage.free_node("n")
        stage.put_node(replace(facts, cordoned=frozenset({"GPU-0"})))
    stage.add_rejected_pod("a")
    assert await stage.run_round() == []
    stage.put_node(after)
    assert await stage.run_round() == ["a"]


async def test_a_rejected_pod_that_reaches_the_ledger_late_is_activated() -> None:
    """Our watch is late: the scheduler asked about the pod before we saw it, and before we saw the room."""
    stage = ActivatorHarness("n", "m")
    stage.reject_pod("late")
    stage.add_rejected_pod("known")
    stage.free_node("n")
    stage.free_node("m")
    runner = asyncio.create_task(stage.kicker.run())
    await stage.door.wait_for_activations(1)
    stage.add_pending_pod("late")
    await stage.door.wait_for_activations(2)
    await end(runner)
    assert stage.door.kicked == ["known", "late"]


async def test_a_pod_that_passes_filter_during_a_round_is_not_activated(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a")
    stage.free_node("n")
    planning = asyncio.create_task(stage.kicker.choose_activations())
    await asyncio.sleep(0)
    stage.accept_pod("a")
    assert await planning == []


async def test_the_next_round_is_due_when_an_attempt_or_a_back_off_ends(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a")
    stage.free_node("n")
    start = stage.seconds
    assert await stage.run_round() == ["a"]
    await stage.run_round()
    assert stage.kicker.next_round_at == start + 5
    stage.seconds += 5
    assert await stage.run_round() == []
    assert stage.kicker.next_round_at == start + 10
    stage.readiness.problem = "the list of pods is not complete yet"
    assert await stage.run_round() == []
    assert stage.kicker.next_round_at == start + 6


async def test_simultaneous_capacity_gains_start_one_round() -> None:
    stage = ActivatorHarness("n", "m")
    stage.add_rejected_pod("a")
    stage.add_rejected_pod("b")
    runner = asyncio.create_task(stage.kicker.run())
    await asyncio.sleep(0)
    stage.free_node("n")
    stage.free_node("m")
    await stage.door.wait_for_activations(2)
    await end(runner)
    assert stage.door.values == ["7-1", "7-2"]


async def test_an_extender_that_no_scheduler_calls_activates_no_pod(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a")
    stage.seconds += 301
    stage.free_node("n")
    assert await stage.run_round() == []
    stage.kicker.on_filter_called("vrampack")
    assert await stage.run_round() == ["a"]


async def test_a_stale_ledger_activates_no_pod(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a")
    stage.free_node("n")
    stage.readiness.problem = "the API server has sent nothing"
    assert await stage.run_round() == []
    stage.readiness.problem = ""
    assert await stage.run_round() == ["a"]


async def test_a_failed_activation_is_counted_and_its_place_goes_to_the_next_pod(stage: ActivatorHarness) -> None:
    stage.door.errors["a"] = RefusedError(400, "BadRequest", "no")
    stage.door.errors["b"] = RefusedError(404, "NotFound", "no such pod")
    stage.door.errors["c"] = NoAnswerError("cut")
    for priority, name in enumerate("dcba"):
        stage.add_rejected_pod(name, priority=priority)
    stage.free_node("n")
    assert [await stage.run_round() for _ in range(3)] == [[], [], []]
    stage.seconds += activator.API_PAUSE_SECONDS
    assert await stage.run_round() == ["d"]
    assert (stage.count_results("failed"), stage.count_results("gone")) == (2, 1)


async def test_an_activation_that_fails_at_the_api_server_is_retried_within_seconds(
    stage: ActivatorHarness,
) -> None:
    """Four minutes of failures, and nothing is held against the node: the pod goes there 2 s after the last."""
    stage.add_rejected_pod("a")
    stage.free_node("n")
    for error in (RefusedError(429, "TooManyRequests", "later"), NoAnswerError("503"), NoAnswerError("cut")):
        stage.door.errors["a"] = error
        for _ in range(8):
            assert await stage.run_round() == []
            stage.seconds += 10
    await stage.run_round()
    stage.door.errors.clear()
    stage.seconds += activator.API_RETRY_SECONDS
    assert await stage.run_round() == ["a"]


async def test_an_activation_is_retried_no_sooner_than_the_api_server_asks(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a")
    stage.free_node("n")
    stage.door.errors["a"] = RefusedError(429, "TooManyRequests", "later", retry_after_seconds=20)
    assert await stage.run_round() == []
    stage.door.errors.clear()
    stage.seconds += 19
    assert await stage.run_round() == []
    stage.seconds += 11
    assert await stage.run_round() == ["a"]


async def test_a_pod_whose_activation_always_fails_lets_others_go_first(stage: ActivatorHarness) -> None:
    """A webhook that fails for one namespace, say."""
    stage.door.errors["bad"] = NoAnswerError("500")
    stage.add_rejected_pod("bad", priority=9)
    stage.add_rejected_pod("good")
    stage.free_node("n")
    assert await stage.run_round() == []
    stage.seconds += activator.API_PAUSE_SECONDS
    assert await stage.run_round() == ["good"]


async def test_a_pod_with_an_unanswered_binding_is_activated_like_any_other() -> None:
    stage = ActivatorHarness("n", "m")
    pod = stage.add_pending_pod("a")
    stage.free_node("n")
    stage.assume_pod(pod, "n")
    stage.ledger.mark_unconfirmed("a", "n")
    stage.reject_pod("a", nodes=["m"])
    stage.free_node("m")
    assert await stage.run_round() == ["a"]


async def test_an_activated_pod_that_is_deleted_counts_as_gone(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a")
    stage.free_node("n")
    assert await stage.run_round() == ["a"]
    stage.ledger.remove_pod("a")
    assert await stage.run_round() == []
    assert stage.count_results("gone") == 1


async def test_at_most_a_hundred_activations_are_pending_at_a_time() -> None:
    stage = ActivatorHarness()
    stage.put_node(node_facts("n", 15))
    stage.fill_node("n")
    for number in range(150):
        stage.add_rejected_pod(f"p{number:03}", 1)
    stage.put_node(node_facts("n", *[15] * 20))
    first = await stage.run_round()
    assert len(first) == activator.MAX_ACTIVATED_PODS
    assert await stage.run_round() == []
    stage.accept_pod(first[0])
    assert await stage.run_round() == ["p100"]


async def test_a_round_stops_at_its_node_limit_and_the_next_one_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of three sizes looks at both nodes: four looks are enough for two of them."""
    monkeypatch.setattr(dry_run, "MAX_NODE_VISITS", 4)
    stage = ActivatorHarness("n", "m")
    for units in (4, 5, 6):
        stage.add_rejected_pod(f"p{units}", units)
    stage.free_node("n")
    stage.free_node("m")
    assert await stage.run_round() == ["p4", "p5"]
    assert await stage.run_round() == ["p6"]


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_policy_change_activates_pods_that_had_seen_all_room(stage: ActivatorHarness) -> None:
    """No policy refuses what fits yet, so the place was there before: what matters is the round. If in vain, it is not repeated."""
    stage.add_rejected_pod("a")
    stage.free_node("n")
    stage.reject_pod("a", nodes=["n"])
    assert await stage.run_round() == []
    stage.ledger.apply_policy_change()
    assert await stage.run_round() == ["a"]
    stage.reject_pod("a", nodes=["n"])
    assert await stage.run_round() == []
    assert stage.count_flushed() == 0


async def test_a_policy_change_activates_no_pod_without_room(stage: ActivatorHarness) -> None:
    stage.add_rejected_pod("a")
    stage.ledger.apply_policy_change()
    assert await stage.run_round() == []


def put_whole_cards(stage: ActivatorHarness, *, offered: int | None) -> None:
    """Cards of 80 and 79 units, for each of which a pod asks for 80; `a` waits for 80, and the pod on the large card ends."""
    stage.put_node(replace(node_facts("n", 80, 79), offered_units=offered))
    asked = pod_request(80, whole=True)
    for name, units, index in (("on-n", 80, 0), ("small", 79, 1)):
        record = Record("vrampack", (Share(units, f"GPU-{index}", index, whole=True),))
        stage.ledger.update_pod(ledger_pod(name, ask=asked, node="n", record=record))
    stage.ledger.update_pod(ledger_pod("a", ask=asked))
    stage.reject_pod("a", nodes=["m"])
    stage.free_node("n")


async def test_a_pod_that_the_scheduler_refuses_by_its_own_sum_is_not_activated() -> None:
    """159 units are offered and 80 asked for: 79 are left, although a card of 80 is empty."""
    stage = ActivatorHarness()
    put_whole_cards(stage, offered=159)
    assert await stage.run_round() == []
    assert stage.kicker.measure_overdue_seconds() == 0
    stage.ledger.remove_pod("small")
    assert await stage.run_round() == ["a"]


async def test_a_pod_is_activated_when_kubelet_offers_enough() -> None:
    stage = ActivatorHarness()
    put_whole_cards(stage, offered=159)
    assert await stage.run_round() == []
    stage.put_node(replace(node_facts("n", 80, 79), offered_units=160))
    assert await stage.run_round() == ["a"]


async def test_where_it_is_not_known_what_kubelet_offers_the_cards_decide() -> None:
    stage = ActivatorHarness()
    put_whole_cards(stage, offered=None)
    assert await stage.run_round() == ["a"]


async def test_an_activated_pod_counts_in_the_schedulers_sum_while_its_place_is_kept(stage: ActivatorHarness) -> None:
    """Both have a card; kubelet offers the units of one."""
    stage.put_node(replace(node_facts("n", 15, 15), offered_units=0))
    stage.add_rejected_pod("a", priority=1)
    stage.add_rejected_pod("b")
    stage.free_node("n")
    stage.put_node(replace(node_facts("n", 15, 15), offered_units=15))
    assert await stage.run_round() == ["a"]
    assert await stage.run_round() == []
    stage.seconds += 5
    assert await stage.run_round() == ["b"]
