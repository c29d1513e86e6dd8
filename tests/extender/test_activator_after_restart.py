"""Which pods a new process takes for rejected, and when."""

from __future__ import annotations

from typing import Any

import pytest

from tests.extender.activator_harness import ActivatorHarness
from tests.support.builders import ledger_pod, node_facts


async def test_a_new_process_treats_waiting_pods_as_rejected() -> None:
    """Once, five seconds after the first call: until then the scheduler asks about the pods in its queue."""
    stage = ActivatorHarness()
    stage.put_node(node_facts("n", 15))
    stage.put_node(node_facts("m", 15))
    stage.add_pending_pod("a")
    stage.add_pending_pod("leaving")
    stage.ledger.update_pod(ledger_pod("leaving", leaving=True))
    stage.seconds += 100
    assert await stage.run_round() == []
    stage.kicker.on_filter_called("vrampack")
    assert await stage.run_round() == []
    stage.seconds += 5
    assert await stage.run_round() == ["a"]
    stage.add_pending_pod("later", 4)
    stage.seconds += 100
    assert "later" not in await stage.run_round()


async def test_a_new_process_lets_a_busy_scheduler_work_its_queue_first() -> None:
    """A pod it has not asked about yet waits in the scheduler's queue, not for us; but none waits longer than a minute."""
    stage = ActivatorHarness("n")
    stage.add_pending_pod("waits", 2)
    stage.free_node("n")
    for second in range(59):
        stage.seconds = 1000.0 + second
        stage.accept_pod(f"passes-{second}")
        assert await stage.run_round() == [], second
    stage.seconds = 1060.0
    stage.accept_pod("passes-last")
    assert await stage.run_round() == ["waits"]


@pytest.mark.parametrize("count", [10, 400])
@pytest.mark.parametrize("kind", ["gated", "of another scheduler"])
async def test_pods_that_no_scheduler_tries_do_not_block_others(kind: str, count: int) -> None:
    """They are more important than the pod that really waits, and each would have delayed it by five seconds."""
    stage = ActivatorHarness("n")
    about: dict[str, Any] = {"gated": True} if kind == "gated" else {"scheduler": "never-called"}
    for number in range(count):
        stage.ledger.update_pod(ledger_pod(f"odd-{number}", units=15, priority=9, **about))
    stage.add_pending_pod("waits")
    stage.reject_pod("waits")
    stage.seconds += 5
    assert await stage.run_round() == []
    stage.free_node("n")
    assert await stage.run_round() == ["waits"]


async def test_pods_of_a_scheduler_that_calls_later_are_activated_then() -> None:
    stage = ActivatorHarness("n")
    stage.ledger.update_pod(ledger_pod("a", units=15, scheduler="second"))
    stage.kicker.on_filter_called("vrampack")
    stage.seconds += 5
    await stage.run_round()
    stage.free_node("n")
    assert await stage.run_round() == []
    stage.kicker.on_filter_called("second")
    assert await stage.run_round() == ["a"]
