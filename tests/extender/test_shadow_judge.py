"""The shadow policy judges what was answered, rests nine times as long, and changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from extender.policy_settings import PolicyTuning
from extender.scheduling.shadow_judge import REST_FACTOR
from policies.engine.engine import NODES_PER_STEP
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod


class ShadowHarness:
    """Verbs whose decisions a shadow of this policy judges; its work takes a millisecond a step."""

    def __init__(self, shadow: dict[str, object] | None, nodes: int = 2) -> None:
        self.harness = harness = SchedulerHarness({f"n{at:02}": [16] for at in range(nodes)})
        harness.add_bound_pod("held", "n01", 8)
        self.judge = harness.parts.shadow_judge
        self.worked_seconds = 0.0
        self.rests: list[float] = []
        self.judge._cpu_clock, self.judge._sleep = self.work, self.rest
        self.judge.set_tuning(PolicyTuning.model_validate({"shadow": shadow}))

    def work(self) -> float:
        self.worked_seconds += 0.0005
        return self.worked_seconds

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)

    def count(self, result: str) -> int:
        return int(self.harness.metrics.shadow_decisions.labels(result)._value.get())

    async def judge_all(self) -> None:
        """Everything that is queued."""
        task = asyncio.create_task(self.judge.run())
        for _ in range(100):
            await asyncio.sleep(0)
        task.cancel()


@pytest.mark.parametrize(
    ("shadow", "results"),
    [
        ({"policy": "binpack"}, (1, 0)),
        ({"policy": "spread"}, (0, 1)),
        ({"policy": "binpack", "bounds": {"card_use_percent": 70}}, (0, 1)),
        (None, (0, 0)),
    ],
)
async def test_the_shadow_policy_reports_whether_it_would_choose_another_node(
    shadow: dict[str, object] | None, results: tuple[int, int]
) -> None:
    """The policy in force takes the node that is in use."""
    desk = ShadowHarness(shadow)
    assert desk.harness.filter_and_prioritize("new") == "n01"
    assert (desk.count("same"), desk.count("other")) == (0, 0)  # the reply comes first
    placements, generation = desk.harness.parts.placements_view.build_json(), desk.harness.ledger.generation
    await desk.judge_all()
    assert (desk.count("same"), desk.count("other")) == results
    assert desk.harness.parts.placements_view.build_json() == placements
    assert desk.harness.ledger.generation == generation
    assert desk.harness.filter_and_prioritize("next") == "n01"


async def test_a_decision_whose_nodes_changed_is_not_judged() -> None:
    desk = ShadowHarness({"policy": "spread"})
    desk.harness.filter_and_prioritize("new")
    desk.harness.add_bound_pod("other", "n00", 4)
    await desk.judge_all()
    assert [desk.count(each) for each in ("stale", "same", "other")] == [1, 0, 0]


async def test_a_pod_not_yet_in_our_watch_is_judged_with_its_own_priority() -> None:
    """The other node has room for it only because of that; a pod that asks in between changes nothing."""
    desk = ShadowHarness({"policy": "binpack"})
    desk.harness.ledger.update_pod(replace(ledger_pod("urgent", units=8, priority=10), nominated_node="n01"))
    assert desk.harness.filter_and_prioritize("unseen", spec={"priority": 11}) == "n01"
    desk.harness.filter_names("another")
    await desk.judge_all()
    assert [desk.count(each) for each in ("same", "other")] == [1, 0]


async def test_the_shadow_judge_rests_nine_times_as_long_as_it_works() -> None:
    desk = ShadowHarness({"policy": "spread"}, nodes=2 * NODES_PER_STEP + 1)
    for at in range(2, 2 * NODES_PER_STEP):
        desk.harness.add_bound_pod(f"held-{at}", f"n{at:02}", 1 + at % 15)
    desk.harness.filter_and_prioritize("new")
    await desk.judge_all()
    assert len(desk.rests) > 2  # the first time states are scored in steps
    assert sum(desk.rests) >= REST_FACTOR * 0.0005 * len(desk.rests)
    assert desk.count("other") == 1


async def test_decisions_while_the_shadow_judge_rests_are_skipped() -> None:
    desk = ShadowHarness({"policy": "spread"})
    goes_on = asyncio.Event()

    async def rest(_: float) -> None:
        await goes_on.wait()

    desk.judge._sleep = rest
    desk.harness.filter_and_prioritize("new")
    await desk.judge_all()
    for at in range(3):
        desk.harness.filter_and_prioritize(f"next-{at}")
    assert desk.count("skipped") == 3


async def test_many_decisions_at_once_do_not_pile_up() -> None:
    desk = ShadowHarness({"policy": "spread"})
    for at in range(20):
        desk.harness.filter_and_prioritize(f"new-{at}")
    assert desk.count("skipped") == 12
