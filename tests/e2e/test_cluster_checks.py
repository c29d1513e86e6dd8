"""What the extender reports about a real cluster: its scheduler's configuration, and what else has its resource.

That its own role lets it look is tried in `test_kubeadm.py`: here the account has the scheduler's roles as well.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus

import pytest

from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import post_bind, read_metric
from tests.support.control_plane.access_denials import ACCOUNT
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifest_builders import (
    PODS,
    RESOURCE,
    cards_annotation,
    pod_manifest,
    published_card,
    read_allocation_record,
)
from tests.support.processes import ManagedProcess

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
ROLE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
CONFLICTS = "vrampack_device_class_conflicts"
FINDINGS = "vrampack_scheduler_config_findings"
LOOKED = 'vrampack_apiserver_requests_total{code="200",resource="deviceclasses",verb="list"}'
NAME = "claims-our-resource"
FILTERED = 'vrampack_extender_request_duration_seconds_count{result="ok",verb="filter"}'


@pytest.fixture
def device_class(cluster: ControlPlane) -> Iterator[str]:
    """A class that names our resource."""
    spec = {"extendedResourceName": RESOURCE}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": NAME}, "spec": spec}
    cluster.request_ok("POST", CLASSES, made)
    yield NAME
    cluster.request("DELETE", f"{CLASSES}/{NAME}")


def test_shipped_configuration_and_bare_cluster_have_no_finding(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram]
) -> None:
    running = extender()
    cluster.wait_until(lambda: read_metric(running, LOOKED) == 1, what="it has looked")
    log = running.process.log_path.read_text()
    assert [read_metric(running, FINDINGS), read_metric(running, CONFLICTS)] == [0, 0]
    assert "scheduler configuration" not in log
    assert "device class" not in log


def test_a_device_class_with_our_resource_is_counted_and_named(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], device_class: str
) -> None:
    running = extender()
    cluster.wait_until(lambda: read_metric(running, CONFLICTS) == 1, what="the class is counted")
    (line,) = [line for line in running.process.log_path.read_text().splitlines() if "device class" in line]
    assert (
        f" ERROR extender.checks.device_classes device class conflict class={device_class} resource={RESOURCE} problem="
        in line
    )

    assert cluster.request("DELETE", f"{CLASSES}/{device_class}")[0] == HTTPStatus.OK
    again = extender(fronted=False)
    cluster.wait_until(lambda: read_metric(again, CONFLICTS) == 0, what="none is counted any more")


def test_a_conflicting_device_class_misleads_the_scheduler(
    cluster: ControlPlane,
    extender: Callable[..., ExtenderProgram],
    scheduler: Callable[..., ManagedProcess],
    device_class: str,
) -> None:
    """A node that advertises the resource is filled as usual; a pod that fits only another node waits, and we are not asked."""
    cluster.add_node("full", cards=cards_annotation(published_card(0, units=4)))
    cluster.add_node("agent-is-down", annotations={"vrampack.dev/cards": cards_annotation(published_card(0))})
    running = extender()
    scheduler()

    cluster.request_ok("POST", PODS, pod_manifest("first", 4))
    pod = cluster.wait_until(lambda: _bound(cluster, "first"), what="it is bound")
    calls = read_metric(running, FILTERED)
    cluster.request_ok("POST", PODS, pod_manifest("second", 4))
    refusal = cluster.wait_until(lambda: _refusal(cluster, "second"), what="the scheduler says why it waits")

    assert read_allocation_record(pod)["cards"][0]["index"] == 0
    assert "cannot allocate all claims" in refusal
    assert (calls, read_metric(running, FILTERED)) == (1, 1)


def _bound(cluster: ControlPlane, name: str) -> Json:
    pod = cluster.request_ok("GET", f"{PODS}/{name}")
    return pod if "nodeName" in pod["spec"] else None


def _refusal(cluster: ControlPlane, name: str) -> str:
    conditions = cluster.request_ok("GET", f"{PODS}/{name}")["status"].get("conditions", [])
    return next((str(found.get("message", "")) for found in conditions if found["type"] == "PodScheduled"), "")


def test_an_account_that_lost_its_rights_makes_the_extender_unready(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram]
) -> None:
    """The watches that it has opened go on, so only the denied Bindings show it."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)))
    running = extender()
    pods = [cluster.request_ok("POST", PODS, pod_manifest(f"p{number}", 4)) for number in range(3)]
    roles = [item for item in cluster.request_ok("GET", ROLE_BINDINGS)["items"] if is_of_our_account(item)]
    for item in roles:
        cluster.request_ok("DELETE", f"{ROLE_BINDINGS}/{item['metadata']['name']}")
    cluster.wait_until(lambda: all("403" in post_bind(running, pod, "gpu-0") for pod in pods), what="denied")
    cluster.wait_until(
        lambda: "does not let this account create pods/binding" in read_readiness(running), 60, what="not ready"
    )
    assert read_metric(running, "vrampack_apiserver_denied") == 1
    for item in roles:
        name = {"name": item["metadata"]["name"], "labels": item["metadata"].get("labels", {})}
        cluster.request_ok("POST", ROLE_BINDINGS, item | {"metadata": name})
    running.wait_ready()
    assert post_bind(running, pods[0], "gpu-0") == ""
    assert cluster.refusals.drain()


def is_of_our_account(binding: Json) -> bool:
    return any(subject["name"] == ACCOUNT for subject in binding.get("subjects", ()))


def read_readiness(extender: ExtenderProgram) -> str:
    try:
        with urllib.request.urlopen(f"{extender.health_url}/readyz", timeout=5) as answer:  # noqa: S310 - our own http address
            return str(answer.read().decode())
    except urllib.error.HTTPError as refused:
        return refused.read().decode()
