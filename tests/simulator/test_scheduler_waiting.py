"""When the scheduler tries a pod again, and what meanwhile counts as taken."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.scripted_extender import Rule
from tests.simulator.scheduler_player import until
from tests.simulator.scheduler_town import Town, a_town

NO = {"*": "no card"}
PARKED = 300.0
"""How long a refused pod waits when nothing changes."""


@pytest.fixture
async def running() -> AsyncIterator[Town]:
    async with a_town() as town, town.scheduling():
        yield town


async def test_backs_off_after_errors_from_one_second_to_ten(running: Town) -> None:
    running.node("n1")
    running.extender.rules = [Rule("filter", status=500)]
    running.pod("a")
    for attempt, seconds in enumerate((1.0, 2.0, 4.0, 8.0, 10.0, 10.0), start=1):
        await running.asked("a", attempt)
        await running.idle(for_seconds=seconds)
        running.clock.advance(seconds)


async def test_changes_do_not_shorten_the_back_off_after_an_error(running: Town) -> None:
    running.node("n1")
    running.extender.rules = [Rule("filter", status=500, times=1)]
    running.pod("a")
    await running.asked("a", 1)
    await running.idle(for_seconds=1.0)

    running.node("n2")
    running.pod("unrelated", None)
    await running.bound("unrelated")
    await running.idle(for_seconds=1.0)

    assert running.filters("a") == 1
    running.clock.advance(1)
    await running.bound("a")


async def test_a_refused_pod_is_tried_again_after_five_minutes(running: Town) -> None:
    running.node("n1")
    running.extender.rules = [Rule("filter", refuse=NO)]
    running.pod("a")
    await running.asked("a", 2)  # again because its condition was written, and not a third time
    await running.idle(for_seconds=PARKED)
    running.extender.rules = []
    running.clock.advance(PARKED)
    await running.bound("a")


async def test_a_refused_pod_needs_no_time_to_take_room_that_appears(running: Town) -> None:
    """The clock stands still: no back-off is waited for."""
    running.node("n1", units=4)
    running.pod("a")
    await running.bound("a")
    running.pod("b")
    await running.refused("b", "Insufficient")
    running.api.delete("pods", "a", grace_seconds=0)
    await running.bound("b")


async def test_a_change_while_filter_runs_is_not_missed(running: Town) -> None:
    running.node("n1")
    running.pod("a")
    await running.bound("a")
    running.extender.rules = [Rule("filter", "b", refuse=NO, hang_seconds=0.1, times=1)]
    running.pod("b")
    await until(lambda: running.extender.open_calls == 1, "filter is called")
    running.api.delete("pods", "a", grace_seconds=0)
    await running.bound("b")


async def test_refused_pods_do_not_wake_one_another(running: Town) -> None:
    """One change, one call per refused pod: their conditions stay as they are, so nothing is written."""
    names = [f"p{number}" for number in range(5)]
    running.node("n1")
    running.extender.rules = [Rule("filter", refuse=NO)]
    for name in names:
        running.pod(name)
    for name in names:
        await running.asked(name, 2)
    await running.idle(for_seconds=PARKED)
    running.clock.advance(20)
    version = running.api.resource_version

    running.api.patch("nodes", "n1", {"metadata": {"annotations": {"x": "1"}}})

    for name in names:
        await running.asked(name, 3)
    await running.idle(for_seconds=PARKED)
    assert running.api.resource_version == version + 1
    assert [running.filters(name) for name in names] == [3] * 5


async def test_a_heartbeat_of_a_node_wakes_nobody(running: Town) -> None:
    running.node("n1")
    running.extender.rules = [Rule("filter", refuse=NO)]
    running.pod("a")
    await running.asked("a", 2)
    beat = {"type": "Ready", "status": "True"}
    running.api.patch("nodes", "n1", {"status": {"conditions": [beat]}}, is_status=True)
    await running.asked("a", 3)

    beat = beat | {"lastHeartbeatTime": "2030-01-01T00:00:00Z"}
    running.api.patch("nodes", "n1", {"status": {"conditions": [beat]}}, is_status=True)
    running.pod("marker", None)
    await running.bound("marker")

    await running.asked("a", 4)  # by the marker's bind alone


async def test_success_without_a_binding_keeps_the_room_until_the_pod_is_deleted(running: Town) -> None:
    running.node("n1", units=4)
    running.extender.rules = [Rule("bind", "a", binds=False)]
    running.pod("a")
    await running.told(1)
    running.api.patch("pods", "a", {"metadata": {"annotations": {"x": "1"}}})
    running.pod("b")
    await running.refused("b", "Insufficient")
    assert not running.node_of("a")
    assert running.filters("a") == 1
    assert "conditions" not in running.api.get("pods", "a")["status"]  # it waits for nothing any more

    running.api.delete("pods", "a")
    await running.bound("b")


async def test_a_pod_deleted_while_it_is_bound_gives_its_room_back(running: Town) -> None:
    running.node("n1", units=4)
    running.extender.rules = [Rule("bind", "a", hang_seconds=0.1, answer={"Error": "pod is gone"})]
    running.pod("a")
    await until(lambda: running.extender.open_calls == 1 and running.filters("a") == 1, "bind is called")
    running.api.delete("pods", "a")
    running.pod("b")
    await running.bound("b")
    assert [pod["metadata"]["name"] for pod in running.api.list_pods()] == ["b"]


async def test_finished_pods_hold_nothing_and_leaving_ones_do(running: Town) -> None:
    running.node("n1", units=4)
    running.pod("a", terminationGracePeriodSeconds=30)
    await running.bound("a")
    running.api.delete("pods", "a")
    running.pod("b")
    await running.refused("b", "Insufficient")
    running.api.patch("pods", "a", {"status": {"phase": "Succeeded"}}, is_status=True)
    await running.bound("b")


async def test_a_pod_that_ends_while_it_is_bound_is_not_tried_again(running: Town) -> None:
    running.node("n1")
    running.extender.rules = [Rule("bind", "a", answer={"Error": "too late"}, hang_seconds=0.1)]
    running.pod("a")
    await running.told(1)
    await running.idle(for_seconds=1.0)
    running.clock.advance(1)
    await until(lambda: running.extender.open_calls == 1 and running.filters("a") == 2, "bind is called again")
    running.api.patch("pods", "a", {"status": {"phase": "Failed"}}, is_status=True)
    await running.idle(for_seconds=2.0)
    running.clock.advance(2)
    running.pod("b")
    await running.bound("b")
    assert running.filters("a") == 2


async def test_a_pod_bound_although_its_bind_failed_holds_its_room(running: Town) -> None:
    running.node("n1", units=4)
    running.extender.rules = [Rule("bind", "a", answer={"Error": "no answer from the API"}, binds=True)]
    running.pod("a")
    await running.told(1)
    running.pod("b")
    await running.refused("b", "Insufficient")
    assert running.filters("b") == 0
