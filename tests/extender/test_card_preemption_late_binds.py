"""Preemption by card for pods that are bound late: their scheduler has chosen a node, and waits there for a volume."""

from __future__ import annotations

from tests.extender.card_preemption_bench import (
    URGENT,
    CardPreemptionBench,
    a_node,
    a_pod,
    half_full,
    open_bench,
    refuse_urgent,
)

CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}
LATE = a_pod("urgent", 6, priority=10, spec=CLAIM)
RIVAL = a_pod("rival", 6, priority=99)
MINUTES = 150


def nominate(bench: CardPreemptionBench, node: str) -> None:
    """As a scheduler does while the pod waits for its volume."""
    bench.server.patch("pods", "urgent", {"status": {"nominatedNodeName": node}}, is_status=True)
    bench.see_changes()


def fail_attempt(bench: CardPreemptionBench) -> None:
    """As a scheduler does when the volume does not come."""
    failed = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "timed out"}
    others = bench.server.get("pods", "urgent")["status"].get("conditions", [])
    change = {"nominatedNodeName": None, "conditions": [*others, failed]}
    bench.server.patch("pods", "urgent", {"status": change}, is_status=True)
    bench.see_changes()


def read_nomination(bench: CardPreemptionBench) -> str:
    return str(bench.server.get("pods", "urgent")["status"]["nominatedNodeName"])


async def test_a_pod_that_waits_for_its_volume_for_minutes_keeps_the_freed_card() -> None:
    async with open_bench(a_node(), *half_full(), LATE, RIVAL) as bench:
        await refuse_urgent(bench)
        bench.server.delete("pods", "n0", grace_seconds=0)
        bench.see_changes()
        assert bench.filter_pod("urgent") == ["n"]
        await bench.pass_time(MINUTES)
        assert (read_nomination(bench), bench.filter_pod("rival")) == ("n", [])
        await bench.api.bind("default", "urgent", "urgent", "n", {}, timeout_seconds=5)
        await bench.pass_time(1)
        assert bench.count_results() == {"begun": 1, "served": 1}


async def test_a_pod_whose_attempt_fails_then_has_a_minute_more() -> None:
    async with open_bench(a_node(), *half_full(), LATE) as bench:
        await refuse_urgent(bench)
        bench.server.delete("pods", "n0", grace_seconds=0)
        await bench.pass_time(10)  # news of the attempt before is over by then
        assert bench.filter_pod("urgent") == ["n"]
        await bench.pass_time(MINUTES)
        fail_attempt(bench)
        await bench.pass_time(50)
        assert (read_nomination(bench), bench.count_results()) == ("n", {"begun": 1})
        await bench.pass_time(20)
        assert bench.count_results() == {"begun": 1, "in_vain": 1}


async def test_a_pod_that_finds_a_place_elsewhere_waits_there_undisturbed() -> None:
    async with open_bench(a_node(), *half_full(), LATE, RIVAL) as bench:
        await refuse_urgent(bench)
        bench.server.restore(a_node("m"))
        bench.server.restore(a_pod("m1", 8, node="m", card=1, priority=99))
        bench.see_changes()
        assert bench.filter_pod("urgent") == ["m"]
        nominate(bench, "m")
        await bench.pass_time(MINUTES)
        assert (read_nomination(bench), bench.filter_pod("rival")) == ("m", [])


async def test_no_pod_is_evicted_for_one_that_waits_where_only_another_extender_holds_its_place() -> None:
    """The scheduler's leader has changed between the first victim and the second."""
    victims = [a_pod(name, 4, node="n") for name in ("x0", "x1")]
    others = [a_pod(f"{node}1", 8, node=node, card=1, priority=99) for node in "nm"]
    full = a_pod("m0", 8, node="m", priority=99)
    async with open_bench(a_node(), a_node("m"), *victims, *others, full, LATE) as bench:
        bench.api.on_eviction = lambda: nominate(bench, "m")
        await refuse_urgent(bench)
        await bench.pass_time(MINUTES)
        assert (len(bench.api.evicted), read_nomination(bench)) == (1, "m")


async def test_a_nomination_elsewhere_that_comes_to_nothing_leaves_the_plan_its_time() -> None:
    """Filter refuses the pod there too, again and again."""
    victims = [a_pod(name, 4, node="n") for name in ("x0", "x1")]
    others = [a_pod(f"{node}1", 8, node=node, card=1, priority=99) for node in "nm"]
    full = a_pod("m0", 8, node="m", priority=99)
    async with open_bench(a_node(), a_node("m"), *victims, *others, full, URGENT) as bench:
        bench.api.on_eviction = lambda: nominate(bench, "m")
        await refuse_urgent(bench)
        bench.api.on_eviction = lambda: None
        await bench.pass_time(15)
        assert bench.filter_pod("urgent") == []
        await bench.pass_time(2)
        assert (len(bench.api.evicted), read_nomination(bench)) == (2, "n")
        await bench.pass_time(MINUTES)
        assert bench.count_results() == {"begun": 1, "in_vain": 1}
