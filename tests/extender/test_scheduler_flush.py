"""Pods that only the scheduler's own flush brought back, and places that wait for it, are counted: the activator missed them."""

from __future__ import annotations

import pytest

from extender.requeue import activator
from tests.extender.activator_harness import ActivatorHarness
from vrampack.kube.errors import RefusedError


@pytest.fixture
def stage() -> ActivatorHarness:
    return ActivatorHarness("n")


async def test_pods_brought_back_only_by_the_flush_are_counted(stage: ActivatorHarness) -> None:
    """There was room, the pod could not be activated, and the scheduler came by itself 300 s later."""
    stage.door.errors["a"] = RefusedError(400, "BadRequest", "no")
    stage.add_rejected_pod("a")
    stage.free_node("n")
    await stage.run_round()
    stage.seconds += 300
    assert stage.kicker.measure_overdue_seconds() == 300
    stage.accept_pod("a")
    assert stage.count_flushed() == 1
    assert stage.kicker.measure_overdue_seconds() == 0


async def test_no_activation_is_overdue_for_a_pod_that_was_activated_or_is_gone() -> None:
    stage = ActivatorHarness("n", "m")
    stage.door.errors["gone"] = RefusedError(400, "BadRequest", "no")
    stage.add_rejected_pod("woken")
    stage.add_rejected_pod("gone")
    stage.free_node("n")
    stage.free_node("m")
    assert await stage.run_round() == ["woken"]
    stage.seconds += 7
    assert stage.kicker.measure_overdue_seconds() == 7
    stage.ledger.remove_pod("gone")
    assert stage.kicker.measure_overdue_seconds() == 0


async def test_no_activation_is_overdue_where_no_scheduler_calls(stage: ActivatorHarness) -> None:
    stage.door.errors["a"] = RefusedError(400, "BadRequest", "no")
    stage.add_rejected_pod("a")
    stage.free_node("n")
    await stage.run_round()
    stage.seconds += activator.SCHEDULER_SILENT_SECONDS + 1
    assert stage.kicker.measure_overdue_seconds() == 0


async def test_activated_and_soon_returning_pods_are_not_counted_as_flushed() -> None:
    stage = ActivatorHarness("n", "m")
    stage.add_rejected_pod("woken")
    stage.free_node("n")
    assert await stage.run_round() == ["woken"]
    stage.door.errors["soon"] = RefusedError(400, "BadRequest", "no")
    stage.add_rejected_pod("soon")
    stage.seconds += 280
    stage.kicker.on_filter_called("vrampack")
    stage.free_node("m")
    assert await stage.run_round() == []
    stage.seconds += 290
    stage.accept_pod("woken")
    stage.accept_pod("soon")
    assert stage.count_flushed() == 0


async def test_room_that_vanished_again_is_not_counted_as_flushed(stage: ActivatorHarness) -> None:
    stage.door.errors["a"] = RefusedError(400, "BadRequest", "no")
    stage.add_rejected_pod("a")
    stage.free_node("n")
    await stage.run_round()
    stage.fill_node("n")
    await stage.run_round()
    stage.seconds += 300
    stage.free_node("n")
    stage.accept_pod("a")
    assert stage.count_flushed() == 0
