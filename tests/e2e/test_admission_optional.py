"""The optional policy: where it is applied, only listed namespaces may name cards without asking for them."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.support.admission.attacks import Attack, debugs_with_cards_unasked, sees_cards_unasked
from tests.support.admission.bench import AdmissionBench, ensure_namespace
from tests.support.admission.pods import admission_container, admission_pod, env_entry, has_exact_environment
from tests.support.admission.policies import (
    OPTIONAL,
    Edit,
    apply_policies,
    delete_policies,
    wait_for_policies,
    with_weakened_policies,
    without_resource,
    without_showing,
    without_validation,
)
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifests import find_pod_template, find_workload

POLICY = "vrampack-visible-devices"
EVERY_CARD = admission_pod(admission_container(env=[env_entry("NVIDIA_VISIBLE_DEVICES")]))

WEAKENINGS: dict[str, tuple[dict[str, Edit], Attack]] = {
    f"{POLICY}: resource pods": ({POLICY: without_resource("pods")}, sees_cards_unasked),
    f"{POLICY}: resource pods/ephemeralcontainers": (
        {POLICY: without_resource("pods/ephemeralcontainers")},
        debugs_with_cards_unasked,
    ),
    f"{POLICY}: validation 0": ({POLICY: without_validation(0)}, sees_cards_unasked),
}


@pytest.fixture(scope="module")
def _installed(cluster: ControlPlane) -> Iterator[None]:
    """For this file only: it is off by default."""

    def probe() -> int:
        return cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", EVERY_CARD)[0]

    apply_policies(cluster, OPTIONAL)
    try:
        wait_for_policies(cluster, lambda: probe() == HTTPStatus.UNPROCESSABLE_ENTITY, what="the optional policy is on")
        yield
    finally:
        delete_policies(cluster, OPTIONAL)
        wait_for_policies(cluster, lambda: probe() == HTTPStatus.CREATED, what="the optional policy is off")


@pytest.fixture
def bench(tenant: AdmissionBench, _installed: None) -> Iterator[AdmissionBench]:
    with tenant.with_node():
        yield tenant


def test_the_optional_policy_refuses_the_variable_with_field_and_fix(bench: AdmissionBench) -> None:
    status, answer = bench.post_pod(EVERY_CARD)
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "env NVIDIA_VISIBLE_DEVICES" in answer["message"]
    assert "ask for aliyun.com/gpu-mem" in answer["message"]


def test_the_optional_policy_admits_pods_that_see_no_card(bench: AdmissionBench) -> None:
    bench.create_pod(admission_pod(admission_container()))
    bench.create_pod(admission_pod(admission_container(env=[env_entry("NVIDIA_VISIBLE_DEVICES", "void")])))


def test_the_optional_policy_ignores_pods_that_ask_for_gpu_memory(bench: AdmissionBench) -> None:
    made = bench.read_pod(
        bench.create_pod(admission_pod(admission_container(units=4, env=[env_entry("NVIDIA_VISIBLE_DEVICES")])))
    )
    assert has_exact_environment(made)


@pytest.mark.usefixtures("_installed")
def test_the_optional_policy_ignores_the_listed_namespaces(cluster: ControlPlane) -> None:
    """Where dcgm-exporter and the GPU operator live."""
    status, answer = cluster.request("POST", "/api/v1/namespaces/kube-system/pods?dryRun=All", EVERY_CARD)
    assert status == HTTPStatus.CREATED, answer


@pytest.mark.usefixtures("_installed")
def test_the_optional_policy_lets_our_agents_see_every_card(cluster: ControlPlane) -> None:
    ensure_namespace(cluster, NAMESPACE)
    pod = {
        "metadata": {"name": "agent"},
        "spec": find_pod_template(find_workload("second-scheduler", "vrampack-agent"))["spec"],
    }
    status, answer = cluster.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", pod)
    assert status == HTTPStatus.CREATED, answer
    assert answer["spec"]["containers"][0]["env"][1] == {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


@pytest.mark.parametrize(("edits", "attack"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_attack_gets_through_a_weakened_policy(bench: AdmissionBench, edits: dict[str, Edit], attack: Attack) -> None:
    assert not attack(bench)
    with with_weakened_policies(bench.cluster, OPTIONAL, edits):
        wait_for_policies(bench.cluster, lambda: attack(bench), what="the attack gets through")
    wait_for_policies(bench.cluster, lambda: not attack(bench), what="the shipped policy is in force again")


def test_every_resource_and_validation_is_shown_to_matter() -> None:
    assert without_showing(WEAKENINGS, OPTIONAL) == set()
