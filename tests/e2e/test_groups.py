"""Groups of Kubernetes 1.36, whose pods start together or not at all, on cards that fit fewer of them than sums of memory say.

`VRAMPACK_GROUP_ROUNDS` (2) says how often two groups compete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.auditing import assert_never_oversold, wait_until_recounted
from tests.e2e.competing_groups import (
    AT_ONCE,
    CARD_UNITS,
    CARDS,
    REFUSAL,
    UNITS,
    CompetingGroups,
    Pod,
    add_gpu_node,
    count_filters,
)
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.pod_placements import read_refusal, run_pods, wait_until_bound
from tests.e2e.release_shape import start_release
from tests.e2e.verb_calls import read_ledger_states
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, pod_manifest

API = "scheduling.k8s.io/v1alpha2"
GROUPS = f"/apis/{API}/namespaces/default/podgroups"
GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
BY_RACK = f"{GATES},TopologyAwareWorkloadScheduling=true"
RACK = "example.com/rack"
TRIES = 3
"""An attempt that fails like the one before writes nothing of that."""
ROUNDS = int(os.environ.get("VRAMPACK_GROUP_ROUNDS", "2"))

Start = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Instead of the suite's own: with the API of groups, which is off by default."""
    flags = [
        "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
        f"--runtime-config={API}=true",
    ]
    with start_release(tmp_path_factory.mktemp("groups"), apiserver_flags=flags) as running:
        yield running


@pytest.mark.timeout(60 + 30 * ROUNDS)
def test_of_two_groups_that_do_not_both_fit_one_starts_whole_and_then_the_other(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    ours = extender()
    scheduler(flags=[GATES])

    def make_group(name: str, minimum: int) -> Callable[[Pod], Pod]:
        return create_group(cluster, name, minimum)

    rounds = CompetingGroups(cluster, ours, make_group, tries=TRIES)
    with assert_never_oversold(cluster):
        for number in range(ROUNDS):
            rounds.run_round(number)
    wait_until_recounted(cluster, ours)


def test_no_pod_is_bound_of_a_group_for_which_only_sums_of_memory_fit(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """20 units are free for 18, but 4 of them on a card of their own."""
    add_gpu_node(cluster, 2)
    ours = extender()
    scheduler(flags=[GATES])
    run_pods(cluster, pod_manifest("occupant", 12))
    join = create_group(cluster, "gang", 2)
    names = ["m0", "m1"]
    for name in names:
        cluster.request_ok("POST", PODS, join(pod_manifest(name, 9)))
    cluster.wait_until(lambda: all(REFUSAL in read_refusal(cluster, name) for name in names))
    assert all("nodeName" not in cluster.request_ok("GET", f"{PODS}/{name}")["spec"] for name in names)
    cluster.request_ok("DELETE", f"{PODS}/occupant", AT_ONCE)
    for name in names:
        wait_until_bound(cluster, name)
    wait_until_recounted(cluster, ours)


def test_a_group_that_fails_for_other_reasons_leaves_its_cards_to_others(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """One of its pods fits no node, so each attempt fails in the same words, which the scheduler writes once."""
    add_gpu_node(cluster, CARDS)
    ours = extender()
    scheduler(flags=[GATES])
    join = create_group(cluster, "never", 3)
    members = [join(pod_manifest(f"m{number}", UNITS)) for number in range(3)]
    members[2]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "none"}
    for pod in members:
        cluster.request_ok("POST", PODS, pod)
    cluster.wait_until(lambda: "minCount" in read_refusal(cluster, "m0"), what="an attempt has failed")
    cluster.wait_until(lambda: len(read_ledger_states(ours)) == 2, what="the next one holds places again")
    other = pod_manifest("other", CARDS * CARD_UNITS, labels={"aliyun.com/gpu-count": str(CARDS)})
    cluster.request_ok("POST", PODS, other)
    wait_until_bound(cluster, "other")
    wait_until_recounted(cluster, ours)


@pytest.mark.timeout(60 + 15 * ROUNDS)
def test_a_group_gets_its_cards_on_whichever_nodes_the_scheduler_chooses(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """It is tried on each rack before one is chosen, and other pods come between the choice and the bind."""
    for rack in ("a", "b"):
        add_gpu_node(cluster, 2, name=f"gpu-{rack}", labels={RACK: rack})
    ours = extender()
    scheduler(flags=[BY_RACK])
    with assert_never_oversold(cluster):
        for number in range(ROUNDS):
            _run_between_choice_and_bind(cluster, ours, number)
    wait_until_recounted(cluster, ours)


def _run_between_choice_and_bind(cluster: ControlPlane, ours: ExtenderProgram, number: int) -> None:
    """The pods of a group are bound on one rack; the others, which come before that, on the other rack."""
    assert ours.front is not None
    join = create_group(cluster, f"racks-{number}", 2, topology=RACK)
    members, others = ([f"{kind}-{number}-{each}" for each in range(2)] for kind in ("member", "other"))
    binds = ours.front.when("POST", "/bind$").hold()
    for name in members:
        cluster.request_ok("POST", PODS, join(pod_manifest(name, UNITS)))
    ours.front.reached(binds, 2)
    before = count_filters(ours)
    for name in others:
        cluster.request_ok("POST", PODS, pod_manifest(name, UNITS))
    cluster.wait_until(lambda: count_filters(ours) >= before + 2, what="the other pods are tried")
    binds.release()
    ours.front.clear()
    racks = [{wait_until_bound(cluster, name)["spec"]["nodeName"] for name in names} for names in (members, others)]
    assert sorted(racks, key=str) == [{"gpu-a"}, {"gpu-b"}]
    for name in (*members, *others):
        cluster.request_ok("DELETE", f"{PODS}/{name}", AT_ONCE)


def create_group(
    cluster: ControlPlane, name: str, minimum: int, *, topology: str | None = None
) -> Callable[[Pod], Pod]:
    """Returns what puts a pod into it. `topology`: the label whose value its nodes must share."""
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if topology is not None:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    cluster.request_ok("POST", GROUPS, {"metadata": {"name": name}, "spec": spec})

    def join(pod: Pod) -> Pod:
        pod["spec"]["schedulingGroup"] = {"podGroupName": name}
        return pod

    return join
