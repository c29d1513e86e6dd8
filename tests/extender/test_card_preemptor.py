"""Preemption by card: for whom pods are evicted and which, what is kept meanwhile, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.card_preemption.refused_calls import MAX_CALLS
from tests.extender.card_preemption_bench import CardPreemptionBench, a_node, a_pod, open_bench
from vrampack.kube.errors import RefusedError

Json = Any
"""Any: objects as the API server writes them."""
NO_BUDGET = RefusedError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")


def half_full(node: str = "n", priority: int = 1) -> list[Json]:
    """5 of 8 units used on each of two cards: the totals have 6 free, no card has more than 3."""
    return [a_pod(f"{node}{card}", 5, node=node, card=card, priority=priority + card) for card in (0, 1)]


URGENT = a_pod("urgent", 6, priority=10)


async def refuse_urgent(bench: CardPreemptionBench) -> None:
    assert bench.filter_pod("urgent") == []
    await bench.pass_time(3)


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


DAEMON: Json = {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}
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


async def test_of_two_victims_none_goes_if_one_is_protected() -> None:
    filling = [a_pod(f"x{at}", 4, node="n", card=0) for at in (0, 1)] + [
        a_pod("keeps", 8, node="n", card=1, priority=99)
    ]
    async with open_bench(a_node(), *filling, URGENT) as bench:
        bench.api.refusals["x1"] = NO_BUDGET
        await refuse_urgent(bench)
        assert bench.api.evicted == []
        assert bench.count_results() == {"withdrawn": 1}


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


async def test_no_pod_is_evicted_while_a_place_is_free() -> None:
    """The activator has the pod tried again."""
    async with open_bench(a_node(), *half_full(), URGENT) as bench:
        assert bench.filter_pod("urgent") == []
        bench.server.restore(a_node("empty"))
        bench.see_changes()
        bench.server.delete("pods", "n1", grace_seconds=0)
        await bench.pass_time(10)
        assert bench.api.evicted == []


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


async def test_every_extender_keeps_the_card_even_if_the_scheduler_ends_the_nomination() -> None:
    """The leader died, and nobody is leader yet."""
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
