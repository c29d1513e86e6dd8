"""Workloads and their pods: what the contract cannot show on both clusters, and what must hold after any changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.builders import (
    a_deployment,
    a_node,
    a_stateful_set,
    a_store,
    a_workload,
    bind_pod,
    list_pod_names,
    list_pods,
    make_ready,
    patch_object,
)
from vrampack.simulator.errors import StatusError
from vrampack.simulator.kubelet import SimulatedKubelet
from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.resource_kinds import DEPLOYMENT, EVENT, POD, STATEFUL_SET, WORKLOAD_KINDS, Object
from vrampack.simulator.workload_controller import WorkloadController

STEPS = 100
"""More turns than any case takes: what has not settled by then never will."""


def settle(store: ObjectStore, *controllers: WorkloadController | SimulatedKubelet) -> None:
    """Let the controllers take turns until nothing changes."""
    for _ in range(STEPS):
        version = store.version
        for controller in controllers:
            controller.reconcile()
        if store.version == version:
            return
    raise AssertionError(f"not settled after {STEPS} steps")


def revisions(store: ObjectStore) -> set[str]:
    return {pod["metadata"]["labels"]["controller-revision-hash"] for pod in list_pods(store)}


NEW_IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}}


def test_the_same_template_has_the_same_hash_in_every_run() -> None:
    found = []
    for _ in range(2):
        store = a_store()
        a_deployment(store, "d", replicas=2)
        settle(store, WorkloadController(store))
        found.append(list_pod_names(store))

    assert found[0] == found[1]
    assert found[0][0].startswith("d-")


def test_a_new_template_replaces_all_pods_of_a_set_at_once() -> None:
    store = a_store()
    a_stateful_set(store, "s", replicas=3, podManagementPolicy="Parallel")
    workloads = WorkloadController(store)
    settle(store, workloads)
    before = revisions(store)

    patch_object(store, STATEFUL_SET, "s", NEW_IMAGE)
    settle(store, workloads)

    assert list_pod_names(store) == ["s-0", "s-1", "s-2"]
    assert {pod["spec"]["containers"][0]["image"] for pod in list_pods(store)} == {"app:2"}
    assert not before & revisions(store)


def test_a_new_template_replaces_pods_that_never_became_ready() -> None:
    store = a_store()
    a_stateful_set(store, "s", replicas=2)
    workloads = WorkloadController(store)
    settle(store, workloads)

    patch_object(store, STATEFUL_SET, "s", NEW_IMAGE)
    settle(store, workloads)

    assert [pod["spec"]["containers"][0]["image"] for pod in list_pods(store)] == ["app:2"]


@pytest.mark.parametrize(
    ("strategy", "images"),
    [
        ({"type": "OnDelete"}, ["app:1", "app:1", "app:1"]),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}, ["app:1", "app:1", "app:2"]),
    ],
    ids=["only when somebody deletes them", "from a partition on"],
)
def test_the_update_strategy_of_a_set_can_keep_old_pods(strategy: Object, images: list[str]) -> None:
    store = a_store()
    a_stateful_set(store, "s", replicas=3, podManagementPolicy="Parallel", updateStrategy=strategy)
    workloads = WorkloadController(store)
    settle(store, workloads)

    patch_object(store, STATEFUL_SET, "s", NEW_IMAGE)
    settle(store, workloads)

    assert [pod["spec"]["containers"][0]["image"] for pod in list_pods(store)] == images


def test_old_pods_of_a_deployment_are_gone_before_new_ones_are_created() -> None:
    store = a_store()
    a_deployment(store, "d", replicas=2)
    workloads = WorkloadController(store)
    settle(store, workloads)
    for name in list_pod_names(store):
        bind_pod(store, name)
    old = list_pod_names(store)

    patch_object(store, DEPLOYMENT, "d", NEW_IMAGE)
    settle(store, workloads)
    assert list_pod_names(store) == old  # bound, and no kubelet lets them go
    for name in old:
        store.delete(POD, "default", name, {"gracePeriodSeconds": 0})
    settle(store, workloads)

    assert [pod["spec"]["containers"][0]["image"] for pod in list_pods(store)] == ["app:2", "app:2"]


def test_a_paused_deployment_keeps_old_pods_and_still_scales() -> None:
    store = a_store()
    a_deployment(store, "d", replicas=2)
    workloads = WorkloadController(store)
    settle(store, workloads)
    old = list_pod_names(store)

    patch_object(store, DEPLOYMENT, "d", {"spec": {"paused": True, "replicas": 3, **NEW_IMAGE["spec"]}})
    settle(store, workloads)
    while_paused = list_pod_names(store)
    patch_object(store, DEPLOYMENT, "d", {"spec": {"paused": None}})
    settle(store, workloads)

    assert set(old) < set(while_paused)
    assert len(while_paused) == len(list_pod_names(store)) == 3
    assert not set(old) & set(list_pod_names(store))


def test_a_deployment_removes_the_least_ready_pods_first() -> None:
    store = a_store()
    a_deployment(store, "d", replicas=4)
    workloads = WorkloadController(store)
    settle(store, workloads)
    unbound, bound, ready, also_ready = list_pod_names(store)  # of one age, so the last name counts as the newest
    for name in (ready, also_ready, bound):
        bind_pod(store, name, node="nowhere")
    for name in (ready, also_ready):
        make_ready(store, name)

    kept = []
    for replicas in (3, 2):
        patch_object(store, DEPLOYMENT, "d", {"spec": {"replicas": replicas}})
        settle(store, workloads)
        kept.append([pod["metadata"]["name"] for pod in list_pods(store) if "deletionTimestamp" not in pod["metadata"]])

    assert unbound not in kept[0]
    assert kept == [[bound, ready, also_ready], [ready, also_ready]]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_finished_pod_is_replaced(phase: str) -> None:
    store = a_store()
    a_stateful_set(store, "s")
    a_deployment(store, "d")
    workloads = WorkloadController(store)
    settle(store, workloads)
    before = {pod["metadata"]["uid"] for pod in list_pods(store)}

    for name in list_pod_names(store):
        patch_object(store, POD, name, {"status": {"phase": phase}}, is_status=True)
    settle(store, workloads)

    fresh = [pod for pod in list_pods(store) if pod["metadata"]["uid"] not in before]
    # the set's new pod has the name of the old one, which had to go; the deployment's is beside the old one
    assert [pod["metadata"]["labels"]["app"] for pod in fresh] == ["d", "s"]
    assert len(list_pods(store)) == 3


def test_an_ordered_set_shrinks_one_by_one() -> None:
    store = a_store()
    a_stateful_set(store, "s", replicas=3)
    workloads = WorkloadController(store)
    for number in range(3):
        settle(store, workloads)
        bind_pod(store, f"s-{number}")
        make_ready(store, f"s-{number}")
    settle(store, workloads)

    patch_object(store, STATEFUL_SET, "s", {"spec": {"replicas": 1}})
    settle(store, workloads)

    # bound, so it terminates slowly: the next one waits for it
    assert [pod["metadata"]["name"] for pod in list_pods(store) if "deletionTimestamp" in pod["metadata"]] == ["s-2"]
    store.delete(POD, "default", "s-2", {"gracePeriodSeconds": 0})
    settle(store, workloads)
    assert [pod["metadata"]["name"] for pod in list_pods(store) if "deletionTimestamp" in pod["metadata"]] == ["s-1"]


def test_a_name_taken_by_a_foreign_pod_is_left_alone() -> None:
    store = a_store()
    body = {"metadata": {"name": "s-0"}, "spec": {"containers": [{"name": "main"}]}}
    stranger = store.create(POD, "default", body)
    a_stateful_set(store, "s", replicas=2, podManagementPolicy="Parallel")

    settle(store, WorkloadController(store))

    assert store.get(POD, "default", "s-0") == stranger
    assert list_pod_names(store) == ["s-0", "s-1"]


def test_an_invalid_template_creates_no_pod_and_is_not_retried_forever() -> None:
    store = a_store()
    made = a_deployment(store, "d", replicas=1)
    spec = made["spec"]["template"]["spec"] | {"containers": [{"name": "main"}]}
    labels = {"metadata": {"labels": {"more": 5}}, "spec": spec}
    patch_object(store, DEPLOYMENT, "d", {"spec": {"template": labels}})

    settle(store, WorkloadController(store))

    assert list_pod_names(store) == []


def test_a_suffix_that_is_taken_is_drawn_again() -> None:
    uids = iter(["owner", "a-11111", "b-11111", "c-11111", "d-22222"])
    store = ObjectStore(now=a_store().current_time, new_uid=lambda: next(uids))
    a_deployment(store, "d", replicas=1)
    workloads = WorkloadController(store)
    settle(store, workloads)

    patch_object(store, DEPLOYMENT, "d", {"spec": {"replicas": 2}})
    settle(store, workloads)

    assert [name[-5:] for name in list_pod_names(store)] == ["11111", "22222"]


def test_pods_of_a_kind_that_is_not_served_are_left_alone() -> None:
    store = a_store()
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "elsewhere", "controller": True}
    body = {"metadata": {"name": "a", "ownerReferences": [owner]}, "spec": {"containers": [{"name": "main"}]}}
    store.create(POD, "default", body)

    settle(store, WorkloadController(store))

    assert list_pod_names(store) == ["a"]


def test_a_pod_whose_owner_was_replaced_by_a_namesake_is_deleted() -> None:
    store = a_store()
    a_stateful_set(store, "s")
    workloads = WorkloadController(store)
    settle(store, workloads)
    (old,) = list_pods(store)

    store.delete(STATEFUL_SET, "default", "s", {})
    a_stateful_set(store, "s")
    settle(store, workloads)

    (new,) = list_pods(store)
    assert old["metadata"]["uid"] != new["metadata"]["uid"]


def test_a_new_event_alone_causes_no_writes() -> None:
    store = a_store()
    a_stateful_set(store, "s")
    workloads = WorkloadController(store)
    settle(store, workloads)
    body = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
    store.create(EVENT, "default", body)
    version = store.version

    workloads.reconcile()

    assert store.version == version


def test_two_deployments_do_not_share_an_orphan() -> None:
    store = a_store()
    workloads = WorkloadController(store)
    a_deployment(store, "d", replicas=1)
    settle(store, workloads)
    store.delete(DEPLOYMENT, "default", "d", {"propagationPolicy": "Orphan"})
    settle(store, workloads)
    (orphan,) = list_pods(store)
    for name in ("d", "e"):
        twin = a_workload("d", replicas=1)
        store.create(DEPLOYMENT, "default", twin | {"metadata": {"name": name}})

    settle(store, workloads)

    owners = {
        pod["metadata"]["uid"]: [each["name"] for each in pod["metadata"]["ownerReferences"]]
        for pod in list_pods(store)
    }
    assert owners.pop(orphan["metadata"]["uid"]) == ["d"]
    assert list(owners.values()) == [["e"]]


def test_workloads_and_kubelet_together_bring_a_set_up_and_down() -> None:
    store = a_store()
    a_node(store)
    a_stateful_set(store, "s", replicas=3)
    controllers = (WorkloadController(store), SimulatedKubelet(store))

    for number in range(3):
        settle(store, *controllers)
        bind_pod(store, f"s-{number}")
    settle(store, *controllers)
    assert store.get(STATEFUL_SET, "default", "s")["status"]["readyReplicas"] == 3
    store.delete(STATEFUL_SET, "default", "s", {})
    settle(store, *controllers)

    assert list_pod_names(store) == []


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["scale", "delete pod", "bind", "image", "over", "node", "recreate"]),
        st.integers(min_value=0, max_value=3),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(actions=ACTIONS)
def test_after_any_changes_every_workload_has_its_desired_pods(actions: list[tuple[str, int]]) -> None:
    """With nodes and a scheduler that binds everything, every workload comes to rest complete."""
    store = a_store(log_length=10_000)
    a_node(store)
    a_stateful_set(store, "s", replicas=2)
    a_deployment(store, "d", replicas=2)
    controllers = (WorkloadController(store), SimulatedKubelet(store))

    for action, number in actions:
        _act(store, action, number)
        settle(store, *controllers)
    settle(store, *controllers)
    while unbound := [pod["metadata"]["name"] for pod in list_pods(store) if not pod["spec"].get("nodeName")]:
        for name in unbound:
            bind_pod(store, name)
        settle(store, *controllers)

    for kind in WORKLOAD_KINDS:
        (owner,) = store.read_page(kind, None).items
        alive = [pod for pod in list_pods(store) if pod["status"]["phase"] == "Running" and _is_of(owner, pod)]
        assert len(alive) == owner["spec"]["replicas"] == owner["status"].get("readyReplicas", 0)
        images = {pod["spec"]["containers"][0]["image"] for pod in alive}
        assert images <= {owner["spec"]["template"]["spec"]["containers"][0]["image"]}
        assert owner["status"]["observedGeneration"] == owner["metadata"]["generation"]


def _is_of(owner: Object, pod: Object) -> bool:
    return bool(pod["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"])


def _act(store: ObjectStore, action: str, number: int) -> None:
    kind, name = (STATEFUL_SET, "s") if number % 2 else (DEPLOYMENT, "d")
    known = list_pod_names(store)
    chosen = known[number % len(known)] if known else "none"
    try:
        if action == "scale":
            patch_object(store, kind, name, {"spec": {"replicas": number}})
        elif action == "delete pod":
            store.delete(POD, "default", chosen, {})
        elif action == "bind":
            bind_pod(store, chosen)
        elif action == "image":
            patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": f"app:{number}"}]}}}}
            patch_object(store, kind, name, patch)
        elif action == "over":
            patch_object(store, POD, chosen, {"status": {"phase": "Failed"}}, is_status=True)
        elif action == "recreate":
            store.delete(kind, "default", name, {})
            (a_stateful_set if kind is STATEFUL_SET else a_deployment)(store, name, replicas=number)
        else:
            a_node(store, f"n-{number}")
    except StatusError:
        return
