"""When the scheduler tries a pod again, and what counts as taken in the meantime."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.scripted_extender import ScriptedRule
from tests.simulator.scheduler_harness import SimulatedSchedulerHarness, simulated_scheduler_harness
from tests.support.scheduler_recordings.player import wait_until_async

NO = {"*": "no card"}
PARKED = 300.0
"""How long a refused pod waits when nothing changes."""


@pytest.fixture
async def running() -> AsyncIterator[SimulatedSchedulerHarness]:
    async with simulated_scheduler_harness() as town, town.scheduling():
        yield town


async def test_backs_off_after_errors_from_one_second_to_ten(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    running.extender.rules = [ScriptedRule("filter", status=500)]
    running.pod("a")
    for attempt, seconds in enumerate((1.0, 2.0, 4.0, 8.0, 10.0, 10.0), start=1):
        await running.wait_for_call("a", attempt)
        await running.wait_until_idle(for_seconds=seconds)
        running.clock.advance(seconds)


async def test_changes_do_not_shorten_the_back_off_after_an_error(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    running.extender.rules = [ScriptedRule("filter", status=500, times=1)]
    running.pod("a")
    await running.wait_for_call("a", 1)
    await running.wait_until_idle(for_seconds=1.0)

    running.node("n2")
    running.pod("unrelated", None)
    await running.wait_until_bound("unrelated")
    await running.wait_until_idle(for_seconds=1.0)

    assert running.filters("a") == 1
    running.clock.advance(1)
    await running.wait_until_bound("a")


async def test_a_refused_pod_is_tried_again_after_five_minutes(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    running.extender.rules = [ScriptedRule("filter", refuse=NO)]
    running.pod("a")
    await running.wait_for_call("a", 2)  # a second time because its condition was written, and not a third time
    await running.wait_until_idle(for_seconds=PARKED)
    running.extender.rules = []
    running.clock.advance(PARKED)
    await running.wait_until_bound("a")


async def test_a_refused_pod_takes_freed_room_without_back_off(running: SimulatedSchedulerHarness) -> None:
    """The clock stands still: no back-off is waited for."""
    running.node("n1", units=4)
    running.pod("a")
    await running.wait_until_bound("a")
    running.pod("b")
    await running.refused("b", "Insufficient")
    running.api.delete("pods", "a", grace_seconds=0)
    await running.wait_until_bound("b")


async def test_a_change_while_filter_runs_is_not_missed(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    running.pod("a")
    await running.wait_until_bound("a")
    running.extender.rules = [ScriptedRule("filter", "b", refuse=NO, hang_seconds=0.1, times=1)]
    running.pod("b")
    await wait_until_async(lambda: running.extender.open_calls == 1, "filter is called")
    running.api.delete("pods", "a", grace_seconds=0)
    await running.wait_until_bound("b")


async def test_refused_pods_do_not_wake_one_another(running: SimulatedSchedulerHarness) -> None:
    """One change, one call per refused pod: their conditions stay as they are, so nothing is written."""
    names = [f"p{number}" for number in range(5)]
    running.node("n1")
    running.extender.rules = [ScriptedRule("filter", refuse=NO)]
    for name in names:
        running.pod(name)
    for name in names:
        await running.wait_for_call(name, 2)
    await running.wait_until_idle(for_seconds=PARKED)
    running.clock.advance(20)
    version = running.api.resource_version

    running.api.patch("nodes", "n1", {"metadata": {"annotations": {"x": "1"}}})

    for name in names:
        await running.wait_for_call(name, 3)
    await running.wait_until_idle(for_seconds=PARKED)
    assert running.api.resource_version == version + 1
    assert [running.filters(name) for name in names] == [3] * 5


async def test_a_heartbeat_of_a_node_wakes_no_pod(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    running.extender.rules = [ScriptedRule("filter", refuse=NO)]
    running.pod("a")
    await running.wait_for_call("a", 2)
    beat = {"type": "Ready", "status": "True"}
    running.api.patch("nodes", "n1", {"status": {"conditions": [beat]}}, is_status=True)
    await running.wait_for_call("a", 3)

    beat = beat | {"lastHeartbeatTime": "2030-01-01T00:00:00Z"}
    running.api.patch("nodes", "n1", {"status": {"conditions": [beat]}}, is_status=True)
    running.pod("marker", None)
    await running.wait_until_bound("marker")

    await running.wait_for_call("a", 4)  # by the marker's bind alone


async def test_a_bind_that_succeeds_without_a_binding_holds_room_until_deletion(
    running: SimulatedSchedulerHarness,
) -> None:
    running.node("n1", units=4)
    running.extender.rules = [ScriptedRule("bind", "a", binds=False)]
    running.pod("a")
    await running.wait_for_event(1)
    running.api.patch("pods", "a", {"metadata": {"annotations": {"x": "1"}}})
    running.pod("b")
    await running.refused("b", "Insufficient")
    assert not running.node_of("a")
    assert running.filters("a") == 1
    assert "conditions" not in running.api.get("pods", "a")["status"]  # it waits for nothing any more

    running.api.delete("pods", "a")
    await running.wait_until_bound("b")


async def test_a_pod_deleted_while_it_is_bound_gives_its_room_back(running: SimulatedSchedulerHarness) -> None:
    running.node("n1", units=4)
    running.extender.rules = [ScriptedRule("bind", "a", hang_seconds=0.1, answer={"Error": "pod is gone"})]
    running.pod("a")
    await wait_until_async(lambda: running.extender.open_calls == 1 and running.filters("a") == 1, "bind is called")
    running.api.delete("pods", "a")
    running.pod("b")
    await running.wait_until_bound("b")
    assert [pod["metadata"]["name"] for pod in running.api.list_pods()] == ["b"]


async def test_terminating_pods_hold_their_room_and_finished_pods_do_not(running: SimulatedSchedulerHarness) -> None:
    running.node("n1", units=4)
    running.pod("a", terminationGracePeriodSeconds=30)
    await running.wait_until_bound("a")
    running.api.delete("pods", "a")
    running.pod("b")
    await running.refused("b", "Insufficient")
    running.api.patch("pods", "a", {"status": {"phase": "Succeeded"}}, is_status=True)
    await running.wait_until_bound("b")


async def test_a_pod_that_ends_during_its_bind_is_not_tried_again(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    running.extender.rules = [ScriptedRule("bind", "a", answer={"Error": "too late"}, hang_seconds=0.1)]
    running.pod("a")
    await running.wait_for_event(1)
    await running.wait_until_idle(for_seconds=1.0)
    running.clock.advance(1)
    await wait_until_async(
        lambda: running.extender.open_calls == 1 and running.filters("a") == 2, "bind is called again"
    )
    running.api.patch("pods", "a", {"status": {"phase": "Failed"}}, is_status=True)
    await running.wait_until_idle(for_seconds=2.0)
    running.clock.advance(2)
    running.pod("b")
    await running.wait_until_bound("b")
    assert running.filters("a") == 2


async def test_a_pod_bound_although_its_bind_failed_holds_its_room(running: SimulatedSchedulerHarness) -> None:
    running.node("n1", units=4)
    running.extender.rules = [ScriptedRule("bind", "a", answer={"Error": "no answer from the API"}, binds=True)]
    running.pod("a")
    await running.wait_for_event(1)
    running.pod("b")
    await running.refused("b", "Insufficient")
    assert running.filters("b") == 0
