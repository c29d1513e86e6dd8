"""Preemption by card: no pod is evicted that need not be, by all that is known when it is its turn."""

from __future__ import annotations

from tests.extender.card_preemption_bench import (
    DAEMON,
    NO_BUDGET,
    URGENT,
    CardPreemptionBench,
    a_node,
    a_pod,
    half_full,
    open_bench,
    refuse_urgent,
)


def end_during_the_plan(bench: CardPreemptionBench, victim: str, *, node: str) -> None:
    """Let this pod end by itself while the planner reads that node."""

    def end_pod(field_selector: str) -> None:
        if field_selector == f"metadata.name={node}":
            bench.server.delete("pods", victim, grace_seconds=0)
            bench.see_changes()

    bench.api.on_list = end_pod


async def test_no_pod_is_evicted_if_another_node_has_room_since_the_plan_was_begun() -> None:
    async with open_bench(a_node(), *half_full(), a_node("m"), *half_full("m", priority=3), URGENT) as bench:
        end_during_the_plan(bench, "m0", node="n")
        await refuse_urgent(bench)
        assert bench.api.evicted == []


async def test_the_victims_of_a_node_that_was_put_back_are_chosen_again() -> None:
    """N is read first and turns out worse than m."""
    on_n = [a_pod("n0", 5, node="n", card=0, priority=1, **DAEMON), a_pod("n1", 5, node="n", card=1, priority=3)]
    on_m = [a_pod("m0", 5, node="m", card=0, priority=2, **DAEMON), a_pod("m1", 5, node="m", card=1, priority=99)]
    async with open_bench(a_node(), *on_n, a_node("m"), *on_m, URGENT) as bench:
        end_during_the_plan(bench, "n0", node="m")
        await refuse_urgent(bench)
        assert bench.api.evicted == []


async def test_no_pod_is_evicted_while_the_activator_has_a_place_for_the_pod() -> None:
    """A new node: the scheduler may take seconds to try the pod again."""
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        assert bench.filter_pod("urgent") == []
        bench.now += 1
        bench.server.restore(a_node("m"))
        bench.see_changes()
        assert await bench.parts.activator.choose_activations()
        await bench.pass_time(4)
        assert bench.api.evicted == []


async def test_a_victim_that_is_needed_no_longer_is_spared() -> None:
    """The second one is refused after the first has gone; then a third pod of the card ends by itself."""
    on_card = [a_pod(name, 3, node="n") for name in ("x0", "x1")] + [a_pod("x2", 2, node="n", priority=8)]
    keeps = a_pod("keeps", 8, node="n", card=1, priority=99)
    async with open_bench(a_node(), *on_card, keeps, a_pod("urgent", 5, priority=10)) as bench:
        bench.api.on_eviction = lambda: bench.api.refusals.update({"x0": NO_BUDGET, "x1": NO_BUDGET})
        await refuse_urgent(bench)
        (first,) = bench.api.evicted
        bench.api.refusals.clear()
        for name in (first, "x2"):
            bench.server.delete("pods", name, grace_seconds=0)
        bench.see_changes()
        await bench.pass_time(10)
        assert bench.api.evicted == [first]


async def test_a_pod_that_is_given_a_place_meanwhile_needs_no_victims() -> None:
    filling = [a_pod(f"x{at}", 4, node="n", card=0) for at in (0, 1)] + [
        a_pod("keeps", 8, node="n", card=1, priority=99)
    ]
    async with open_bench(a_node(), *filling, URGENT) as bench:

        def free_a_node() -> None:
            bench.server.restore(a_node(f"m{bench.server.resource_version}"))
            bench.see_changes()
            assert bench.filter_pod("urgent")

        bench.api.on_dry_run = free_a_node
        await refuse_urgent(bench)
        assert bench.api.evicted == []


async def test_no_pod_is_evicted_while_a_place_is_free() -> None:
    """The activator has the pod tried again."""
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        assert bench.filter_pod("urgent") == []
        bench.server.restore(a_node("empty"))
        bench.see_changes()
        bench.server.delete("pods", "n1", grace_seconds=0)
        await bench.pass_time(10)
        assert bench.api.evicted == []


async def test_pods_that_ended_long_ago_do_not_shorten_the_wait_for_others() -> None:
    async with open_bench(
        a_node(), *half_full(priority=20), a_node("m"), *half_full("m", priority=20), URGENT
    ) as bench:
        bench.server.delete("pods", "n0", grace_seconds=30)
        bench.see_changes()
        await refuse_urgent(bench)
        bench.server.delete("pods", "n0", grace_seconds=0)
        bench.server.restore(a_pod("n9", 5, node="n", priority=20))
        for _ in range(4):
            bench.filter_pod("urgent")
            await bench.pass_time(50)
        bench.server.delete("pods", "m0", grace_seconds=0)
        bench.server.restore(a_pod("m9", 5, node="m"))
        bench.server.delete("pods", "n9", grace_seconds=30)
        bench.see_changes()
        for _ in range(3):
            bench.filter_pod("urgent")
            await bench.pass_time(25)
        assert bench.api.evicted == []
