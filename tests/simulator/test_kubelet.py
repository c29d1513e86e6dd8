"""The simulated kubelet: bound pods run, deleted pods are removed, and nothing else is touched."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.simulator.builders import a_node, a_store, bind_pod, list_pod_names, list_pods, patch_object
from vrampack.simulator.kubelet import SimulatedKubelet
from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.resource_kinds import POD, Object

ADDRESS = [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}]


def a_pod(store: ObjectStore, name: str, **spec: object) -> Object:
    body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "app:1"}], **spec}}
    return store.create(POD, "default", body)


def status(store: ObjectStore, name: str) -> Object:
    found: Object = store.get(POD, "default", name)["status"]
    return found


def test_a_bound_pod_runs() -> None:
    store = a_store()
    a_node(store, addresses=ADDRESS)
    a_pod(store, "a")
    bind_pod(store, "a")

    SimulatedKubelet(store).reconcile()

    now = "2026-01-02T12:00:00Z"
    told = status(store, "a")
    assert (told["phase"], told["startTime"], told["hostIP"]) == ("Running", now, "10.0.0.1")
    assert (told["podIP"], told["podIPs"]) == ("10.244.0.1", [{"ip": "10.244.0.1"}])
    conditions = {each["type"]: each["status"] for each in told["conditions"]}
    assert conditions == dict.fromkeys(("Initialized", "Ready", "ContainersReady", "PodScheduled"), "True")
    (container,) = told["containerStatuses"]
    assert (container["name"], container["ready"], container["restartCount"]) == ("main", True, 0)
    assert container["state"] == {"running": {"startedAt": now}}


def test_init_containers_are_completed_and_sidecars_run() -> None:
    store = a_store()
    a_node(store)
    a_pod(store, "a", initContainers=[{"name": "once"}, {"name": "side", "restartPolicy": "Always"}])
    bind_pod(store, "a")

    SimulatedKubelet(store).reconcile()

    once, side = status(store, "a")["initContainerStatuses"]
    assert (once["name"], once["state"]["terminated"]["reason"]) == ("once", "Completed")
    assert (side["name"], list(side["state"])) == ("side", ["running"])


def test_status_written_before_a_pod_runs_is_kept() -> None:
    store = a_store()
    a_node(store)
    a_pod(store, "a")
    bind_pod(store, "a")
    own = {"conditions": [*status(store, "a")["conditions"], {"type": "example.com/own", "status": "True"}]}
    patch_object(store, POD, "a", {"status": own}, is_status=True)

    SimulatedKubelet(store).reconcile()

    assert "example.com/own" in [each["type"] for each in status(store, "a")["conditions"]]


def test_every_pod_has_an_address_of_its_own() -> None:
    store = a_store()
    a_node(store)
    kubelet = SimulatedKubelet(store)
    for number in range(300):
        a_pod(store, f"p-{number:03}")
        bind_pod(store, f"p-{number:03}")
    kubelet.reconcile()

    addresses = [pod["status"]["podIP"] for pod in list_pods(store)]

    assert len(set(addresses)) == 300
    # 254 to a block: the last is number 300 - 254 = 46 of the next
    assert (addresses[0], addresses[-1]) == ("10.244.0.1", "10.244.1.46")


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed", "Unknown"])
def test_a_pod_that_has_already_started_is_left_alone(phase: str) -> None:
    store = a_store()
    a_node(store)
    a_pod(store, "a")
    bind_pod(store, "a")
    patch_object(store, POD, "a", {"status": {"phase": phase}}, is_status=True)
    version = store.version

    SimulatedKubelet(store).reconcile()

    assert store.version == version


def test_an_unbound_pod_is_left_alone() -> None:
    store = a_store()
    a_node(store)
    a_pod(store, "a")

    SimulatedKubelet(store).reconcile()

    assert status(store, "a") == {"phase": "Pending"}


def test_a_pod_waits_for_its_node() -> None:
    store = a_store()
    a_pod(store, "a")
    bind_pod(store, "a")
    kubelet = SimulatedKubelet(store)

    kubelet.reconcile()
    assert status(store, "a")["phase"] == "Pending"
    a_node(store)
    kubelet.reconcile()

    assert status(store, "a")["phase"] == "Running"


def test_a_pod_that_is_deleted_is_removed() -> None:
    store = a_store()
    a_node(store)
    for name in ("a", "b"):
        a_pod(store, name)
        bind_pod(store, name)
    kubelet = SimulatedKubelet(store)
    kubelet.reconcile()

    store.delete(POD, "default", "a", {})
    kubelet.reconcile()

    assert list_pod_names(store) == ["b"]


def test_a_deleted_pod_with_no_node_is_left_alone() -> None:
    store = a_store()
    a_pod(store, "a")
    bind_pod(store, "a", node="nowhere")
    store.delete(POD, "default", "a", {})

    SimulatedKubelet(store).reconcile()

    assert list_pod_names(store) == ["a"]


def test_a_finalizer_holds_a_pod_that_has_stopped() -> None:
    store = a_store()
    a_node(store)
    store.create(
        POD,
        "default",
        {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}, "spec": {"containers": [{"name": "main"}]}},
    )
    bind_pod(store, "a")
    store.delete(POD, "default", "a", {})
    kubelet = SimulatedKubelet(store)

    kubelet.reconcile()
    version = store.version
    kubelet.reconcile()

    assert (list_pod_names(store), store.version) == (["a"], version)
    patch_object(store, POD, "a", {"metadata": {"finalizers": None}})
    assert list_pod_names(store) == []


def test_a_kubelet_whose_history_expired_lists_again() -> None:
    store = a_store(log_length=4)
    kubelet = SimulatedKubelet(store)
    kubelet.reconcile()
    a_node(store)
    a_pod(store, "a")
    bind_pod(store, "a")
    for number in range(9):
        a_node(store, f"other-{number}")

    kubelet.reconcile()

    assert status(store, "a")["phase"] == "Running"


async def test_changes_wake_the_kubelet() -> None:
    store = a_store()
    running = asyncio.Event()
    task = asyncio.create_task(SimulatedKubelet(store).run())

    def check_pods() -> None:
        if any(pod["status"]["phase"] == "Running" for pod in list_pods(store)):
            running.set()

    store.subscribe(check_pods)
    await asyncio.sleep(0)
    a_node(store)
    a_pod(store, "a")
    bind_pod(store, "a")

    async with asyncio.timeout(5):
        await running.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
