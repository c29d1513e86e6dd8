"""Preemption by card: pods and nodes that cannot be helped do not keep others from their turn."""

from __future__ import annotations

from extender.card_preemption.refused_calls import MAX_CALLS
from tests.extender.card_preemption_bench import (
    DAEMON,
    NO_BUDGET,
    URGENT,
    a_node,
    a_pod,
    half_full,
    open_bench,
    refuse_urgent,
)


async def test_nodes_of_protected_pods_do_not_hide_another_node() -> None:
    """At most four are read for a plan; the next plan leaves them out."""
    objects = [a_node("e"), *half_full("e", priority=5)]
    for name in "abcd":
        keeps = a_pod(f"{name}1", 5, node=name, card=1, priority=99)
        objects += [a_node(name), a_pod(f"{name}0", 5, node=name, priority=0, **DAEMON), keeps]
    async with open_bench(*objects, URGENT) as bench:
        await refuse_urgent(bench)
        await bench.pass_time(10)
        assert bench.api.evicted == ["e0"]


async def test_a_node_with_a_pod_that_cannot_be_read_does_not_hide_another_node() -> None:
    odd = a_pod("odd", 0, node="n", priority=0)
    odd["spec"]["containers"] = [{"name": "main", "ports": [{"hostIP": None}]}]
    async with open_bench(a_node(), odd, *half_full(), a_node("m"), *half_full("m", priority=3), URGENT) as bench:
        await refuse_urgent(bench)
        assert bench.api.evicted == ["m0"]


async def test_pods_for_which_none_may_be_evicted_do_not_hide_others() -> None:
    """More of them than calls are remembered."""
    names = [f"kueue{at}" for at in range(MAX_CALLS + 3)]
    labels = {"kueue.x-k8s.io/managed": "true"}
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        for name in names:
            bench.server.restore(a_pod(name, 6, priority=50, labels=labels))
        bench.see_changes()
        for _ in range(len(names) + 10):
            for name in (*names, "urgent"):
                assert bench.filter_pod(name) == []
            await bench.pass_time(1)
            if bench.api.evicted:
                break
        assert "GPUMemoryPreemptionPlanned" in bench.list_told("urgent")


async def test_a_pod_for_which_none_may_be_evicted_is_looked_at_again_when_it_changes() -> None:
    urgent = a_pod("urgent", 6, priority=10, labels={"kueue.x-k8s.io/managed": "true"})
    async with open_bench(a_node(), *half_full(), urgent) as bench:
        await refuse_urgent(bench)
        await refuse_urgent(bench)
        bench.server.patch("pods", "urgent", {"metadata": {"labels": {"kueue.x-k8s.io/managed": None}}})
        bench.see_changes()
        await refuse_urgent(bench)
        assert bench.api.evicted == ["n0"]


async def test_a_pod_whose_victims_have_budgets_lets_others_have_their_turn() -> None:
    """It tries three of its five nodes at once, and the pod is not nominated to any."""
    names = [f"p{at}" for at in range(5)]
    nodes = [each for name in names for each in (a_node(name), *half_full(name))]
    second = a_pod("second", 5, priority=9, spec={"nodeSelector": {"zone": "z"}})
    async with open_bench(*nodes, URGENT, second) as bench:
        for name in names:
            bench.api.refusals[f"{name}0"] = bench.api.refusals[f"{name}1"] = NO_BUDGET
        version = bench.server.get("pods", "urgent")["metadata"]["resourceVersion"]
        assert bench.filter_pod("second") == []
        await refuse_urgent(bench)
        await bench.pass_time(4)
        assert bench.count_results() == {"withdrawn": 3}
        assert "GPUMemoryNotPreempting" in bench.list_told("second")
        assert bench.server.get("pods", "urgent")["metadata"]["resourceVersion"] == version
