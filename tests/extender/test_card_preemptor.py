"""Which pods preemption by card serves, which pods it evicts for them, and what becomes of the freed card."""

from __future__ import annotations

import json
from typing import Any

import pytest

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

Json = Any
"""Any: objects as the API server writes them."""


async def test_never_evicts_no_pod() -> None:
    async with open_bench(a_node(), *half_full(), URGENT, by_card="never") as bench:
        await refuse_urgent(bench)
        assert (bench.api.evicted, bench.events.told) == ([], [])


async def test_plan_only_says_which_pods_would_go() -> None:
    async with open_bench(a_node(), *half_full(), URGENT, by_card="plan") as bench:
        await refuse_urgent(bench)
        await bench.pass_time(100)
        assert bench.api.evicted == []
        ((name, reason, text),) = bench.events.told
        assert (name, reason) == ("urgent", "GPUMemoryPreemptionPlanned")
        assert text.startswith("node n has no free card: default/n0 would be evicted")
        assert bench.count_results() == {"planned": 1}
        assert "nominatedNodeName" not in bench.server.get("pods", "urgent")["status"]


async def test_act_evicts_the_least_important_pod_and_keeps_its_card() -> None:
    lesser = a_pod("lesser", 4, priority=9)
    async with open_bench(a_node(), *half_full(), URGENT, lesser) as bench:
        await refuse_urgent(bench)
        assert bench.api.evicted == ["n0"]
        assert bench.server.get("pods", "urgent")["status"]["nominatedNodeName"] == "n"
        assert (bench.list_told("urgent"), bench.list_told("n0")) == (
            ["GPUMemoryPreemptionPlanned"],
            ["GPUMemoryPreempted"],
        )
        await bench.pass_time(30)
        bench.server.delete("pods", "n0", grace_seconds=0)
        await bench.pass_time(1)
        assert bench.filter_pod("lesser") == []
        assert bench.filter_pod("urgent") == ["n"]
        await bench.api.bind("default", "urgent", "urgent", "n", {}, timeout_seconds=5)
        await bench.pass_time(1)
        assert bench.count_results() == {"begun": 1, "served": 1}
        assert bench.api.evicted == ["n0"]


async def test_a_nomination_that_the_scheduler_ends_is_written_again() -> None:
    """It does so when it tries the pod before the victims are gone."""
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        await refuse_urgent(bench)
        bench.server.patch("pods", "urgent", {"status": {"nominatedNodeName": None}}, is_status=True)
        await bench.pass_time(1)
        assert bench.server.get("pods", "urgent")["status"]["nominatedNodeName"] == "n"


BENEFICIARIES = {
    "of no higher priority": ({}, {"priority": 1}),
    "that may not preempt": ({}, {"preemptionPolicy": "Never"}),
    "with rules about other pods": (
        {},
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}},
    ),
    "that must be spread": ({}, {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}),
    "in a group": ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, {}),
    "with resource claims": ({}, {"resourceClaims": [{"name": "c"}]}),
    "of Kueue": ({"labels": {"kueue.x-k8s.io/managed": "true"}}, {}),
    "that tolerates too little": ({}, {"nodeSelector": {"zone": "b"}}),
}


@pytest.mark.parametrize(("metadata", "spec"), BENEFICIARIES.values(), ids=BENEFICIARIES)
async def test_no_pod_is_evicted_for_a_pod(metadata: Json, spec: Json) -> None:
    urgent = a_pod("urgent", 6, priority=10, spec=spec, **metadata)
    async with open_bench(a_node(), *half_full(), urgent) as bench:
        await refuse_urgent(bench)
        assert bench.api.evicted == []
        assert bench.list_told("urgent") == ["GPUMemoryNotPreempting"]


VICTIMS: dict[str, tuple[Json, Json]] = {
    "of a DaemonSet": (DAEMON, {}),
    "static": ({"annotations": {"kubernetes.io/config.mirror": "x"}}, {}),
    "of Kueue": ({"annotations": {"kueue.x-k8s.io/queue-name": "q"}}, {}),
}


@pytest.mark.parametrize(("metadata", "spec"), VICTIMS.values(), ids=VICTIMS)
async def test_a_protected_pod_is_spared(metadata: Json, spec: Json) -> None:
    """Without it the more important pod on the other card has to go."""
    spared = a_pod("n0", 5, node="n", card=0, spec=spec, **metadata)
    async with open_bench(a_node(), spared, half_full()[1], URGENT) as bench:
        await refuse_urgent(bench)
        assert bench.api.evicted == ["n1"]


async def test_critical_pods_are_spared_by_the_most_urgent_pod() -> None:
    urgent = a_pod("urgent", 6, priority=2_000_001_000)
    async with open_bench(a_node(), *half_full(priority=2_000_000_000), urgent) as bench:
        await refuse_urgent(bench)
        assert bench.api.evicted == []


async def test_a_node_that_was_cordoned_since_the_call_is_left_out() -> None:
    """By its pods, which are the less important ones, it would be the first."""
    async with open_bench(a_node(), *half_full(), a_node("m"), *half_full("m", priority=3), URGENT) as bench:
        assert bench.filter_pod("urgent") == []
        bench.server.patch("nodes", "n", {"spec": {"unschedulable": True}})
        await bench.pass_time(3)
        assert bench.api.evicted == ["m0"]


async def test_where_a_budget_protects_the_victim_another_node_is_taken() -> None:
    async with open_bench(a_node(), *half_full(), a_node("m"), *half_full("m", priority=3), URGENT) as bench:
        bench.api.refusals["n0"] = NO_BUDGET
        await refuse_urgent(bench)
        assert bench.api.evicted == ["m0"]
        assert bench.server.get("pods", "urgent")["status"]["nominatedNodeName"] == "m"
        assert bench.count_results() == {"begun": 1, "withdrawn": 1}


async def test_of_two_victims_none_goes_if_one_is_protected() -> None:
    filling = [a_pod(f"x{at}", 4, node="n", card=0) for at in (0, 1)] + [
        a_pod("keeps", 8, node="n", card=1, priority=99)
    ]
    async with open_bench(a_node(), *filling, URGENT) as bench:
        bench.api.refusals["x1"] = NO_BUDGET
        await refuse_urgent(bench)
        assert bench.api.evicted == []
        assert bench.count_results() == {"withdrawn": 1}


BUDGETS = {
    "of the cluster": {"max_evictions_per_hour": 1},
    "of a namespace": {"max_evictions_per_namespace_per_hour": 1},
}


@pytest.mark.parametrize("settings", BUDGETS.values(), ids=BUDGETS)
async def test_so_many_pods_are_evicted_in_an_hour(settings: Json) -> None:
    second = a_pod("second", 6, priority=10)
    async with open_bench(a_node(), *half_full(), URGENT, second, **settings) as bench:
        bench.filter_pod("second")
        await refuse_urgent(bench)
        assert bench.filter_pod("urgent") == bench.filter_pod("second") == []
        await bench.pass_time(60)
        assert len(bench.api.evicted) == 1


async def test_nothing_is_begun_long_after_the_last_call() -> None:
    """The scheduler may call another extender since. Its next call for any pod counts."""
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        assert bench.filter_pod("urgent") == []
        bench.now += 30
        await bench.pass_time(3)
        assert (bench.api.evicted, bench.parts.card_preemptor.needs_lease()) == ([], False)
        await refuse_urgent(bench)
        assert (bench.api.evicted, bench.parts.card_preemptor.needs_lease()) == (["n0"], True)
        bench.now += 60
        assert bench.parts.card_preemptor.needs_lease()  # until the pod is bound


async def test_another_holder_of_the_lease_acts_alone() -> None:
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        bench.api.lease.spec = {"holderIdentity": "another", "leaseDurationSeconds": 15}
        await refuse_urgent(bench)
        assert bench.api.evicted == []


async def test_the_metric_of_the_leader_is_0_while_it_is_not_ready() -> None:
    async with open_bench(a_node(), *half_full(), URGENT) as bench:

        def read_metric() -> float:
            (family,) = bench.metrics.card_preemption_leader.collect()
            return family.samples[0].value

        await refuse_urgent(bench)
        assert read_metric() == 1
        bench.readiness.problem = "stale"
        await bench.pass_time(1)
        assert read_metric() == 0


async def test_a_new_process_waits_for_the_victims_of_an_earlier_one() -> None:
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        await refuse_urgent(bench)
        successor = CardPreemptionBench(bench.server, bench.api, by_card="act")
        assert successor.filter_pod("urgent") == []
        await successor.pass_time(40)
        assert bench.api.evicted == ["n0"]
        bench.server.delete("pods", "n0", grace_seconds=0)
        successor.see_changes()
        assert successor.filter_pod("urgent") == ["n"]


async def test_a_new_leader_waits_as_long_as_the_victims_take() -> None:
    """One of them may write a checkpoint for minutes."""
    lesser = a_pod("lesser", 4, priority=9)
    async with open_bench(a_node(), *half_full(), URGENT, lesser) as bench:
        await refuse_urgent(bench)
        successor = CardPreemptionBench(bench.server, bench.api, by_card="act")
        for _ in range(8):
            assert successor.filter_pod("urgent") == []
            await successor.pass_time(50)
        bench.server.delete("pods", "n0", grace_seconds=0)
        successor.see_changes()
        assert (successor.count_results(), successor.filter_pod("lesser")) == ({}, [])


async def test_every_extender_keeps_the_card_even_if_the_scheduler_ends_the_nomination() -> None:
    """The leader died, and no extender has taken its Lease yet."""
    lesser = a_pod("lesser", 4, priority=9)
    async with open_bench(a_node(), *half_full(), URGENT, lesser) as bench:
        await refuse_urgent(bench)
        bench.server.patch("pods", "urgent", {"status": {"nominatedNodeName": None}}, is_status=True)
        successor = CardPreemptionBench(bench.server, bench.api, by_card="act")
        bench.server.delete("pods", "n0", grace_seconds=0)
        successor.see_changes()
        assert successor.filter_pod("lesser") == []
        assert successor.filter_pod("urgent") == ["n"]


async def test_a_card_is_not_kept_for_ever_for_a_pod_of_an_earlier_process() -> None:
    """Something keeps the scheduler from binding it: a minute after the next leader has begun, its card is room for others."""
    lesser = a_pod("lesser", 4, priority=1)
    async with open_bench(a_node(), *half_full(), URGENT, lesser) as bench:
        await refuse_urgent(bench)
        bench.server.delete("pods", "n0", grace_seconds=0)
        successor = CardPreemptionBench(bench.server, bench.api, by_card="act")
        assert successor.filter_pod("lesser") == []
        await successor.pass_time(90)
        assert successor.count_results() == {"in_vain": 1}
        assert successor.filter_pod("lesser") == ["n"]


async def test_for_a_pod_that_was_not_bound_no_pod_is_evicted_again_soon() -> None:
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        await refuse_urgent(bench)
        bench.server.delete("pods", "n0", grace_seconds=0)
        await bench.pass_time(62)
        assert bench.count_results() == {"begun": 1, "in_vain": 1}
        bench.server.restore(a_pod("n0", 5, node="n", priority=11))
        bench.server.patch("pods", "urgent", {"status": {"nominatedNodeName": None}}, is_status=True)
        bench.see_changes()
        assert bench.filter_pod("urgent") == []
        await bench.pass_time(200)
        assert bench.api.evicted == ["n0"]


async def propose(bench: CardPreemptionBench, victims: Json) -> Json:
    body = {"Pod": bench.server.get("pods", "urgent"), "NodeNameToMetaVictims": {"n": {"Pods": victims}}}
    answer = await bench.parts.preemption.preempt(json.dumps(body).encode())
    return json.loads(answer.body)["NodeNameToMetaVictims"]


async def test_a_served_pod_gets_no_victims_from_the_scheduler() -> None:
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        await refuse_urgent(bench)
        assert await propose(bench, [{"UID": "n1"}]) == {}


async def test_a_scheduler_that_asks_about_nodes_without_victims_is_left_alone() -> None:
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        await propose(bench, [])
        bench.now += 10  # its answer is forgotten by then
        await refuse_urgent(bench)
        assert bench.api.evicted == []
        bench.now += 3600  # it may be an older version by then
        await refuse_urgent(bench)
        assert bench.api.evicted == ["n0"]
