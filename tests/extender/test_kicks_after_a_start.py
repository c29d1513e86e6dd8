"""Whom a new process takes for refused, and when."""

from __future__ import annotations

from tests.builders import a_pod, node_facts
from tests.extender.kick_stage import Stage


async def test_a_new_process_takes_what_waits_for_refused() -> None:
    """Five seconds after the first call, in which the scheduler asks about whom it wants to; once."""
    stage = Stage()
    stage.put(node_facts("n", 15))
    stage.put(node_facts("m", 15))
    stage.arrive("a")
    stage.arrive("leaving")
    stage.ledger.update_pod(a_pod("leaving", leaving=True))
    stage.seconds += 100
    assert await stage.round() == []
    stage.kicker.on_filter_called()
    assert await stage.round() == []
    stage.seconds += 5
    assert await stage.round() == ["a"]
    stage.arrive("later", 4)
    stage.seconds += 100
    assert "later" not in await stage.round()


async def test_a_new_process_lets_a_busy_scheduler_work_its_queue_first() -> None:
    """Whom it has not asked about yet waits in the scheduler's queue, not for us; but nobody longer than a minute."""
    stage = Stage("n")
    stage.arrive("waits", 2)
    stage.free("n")
    for second in range(59):
        stage.seconds = 1000.0 + second
        stage.admit(f"passes-{second}")
        assert await stage.round() == [], second
    stage.seconds = 1060.0
    stage.admit("passes-last")
    assert await stage.round() == ["waits"]
