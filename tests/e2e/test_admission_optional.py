"""The optional policy: where it is applied, nobody names cards without asking for them, but for listed namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.e2e import admission_bench
from tests.e2e.admission_attacks import Attack, debugs_with_cards_unasked, sees_cards_unasked
from tests.e2e.admission_bench import Bench
from tests.e2e.admission_pods import a_container, a_pod, has_exact_environment, variable
from tests.e2e.admission_policies import (
    OPTIONAL,
    Edit,
    apply,
    delete,
    weakened,
    without_resource,
    without_showing,
    without_validation,
)
from tests.e2e.cluster import Cluster
from tests.e2e.refusals import NAMESPACE
from tests.manifests.kustomization import template, workload

POLICY = "vrampack-visible-devices"
EVERY_CARD = a_pod(a_container(env=[variable("NVIDIA_VISIBLE_DEVICES")]))

WEAKENINGS: dict[str, tuple[dict[str, Edit], Attack]] = {
    f"{POLICY}: resource pods": ({POLICY: without_resource("pods")}, sees_cards_unasked),
    f"{POLICY}: resource pods/ephemeralcontainers": (
        {POLICY: without_resource("pods/ephemeralcontainers")},
        debugs_with_cards_unasked,
    ),
    f"{POLICY}: validation 0": ({POLICY: without_validation(0)}, sees_cards_unasked),
}


@pytest.fixture(scope="module")
def _installed(cluster: Cluster) -> Iterator[None]:
    """For this file only: it is off by default."""

    def probe() -> int:
        return cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", EVERY_CARD)[0]

    apply(cluster, OPTIONAL)
    try:
        cluster.wait(lambda: probe() == HTTPStatus.UNPROCESSABLE_ENTITY, 20, what="the optional policy is on")
        yield
    finally:
        delete(cluster, OPTIONAL)
        cluster.wait(lambda: probe() == HTTPStatus.CREATED, 20, what="the optional policy is off")


@pytest.fixture
def bench(cluster: Cluster, _installed: None) -> Iterator[Bench]:
    with admission_bench.bench(cluster) as made:
        yield made


def test_it_refuses_the_variable_with_field_and_cure(bench: Bench) -> None:
    status, answer = bench.create(EVERY_CARD)
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "env NVIDIA_VISIBLE_DEVICES" in answer["message"]
    assert "ask for aliyun.com/gpu-mem" in answer["message"]


def test_it_lets_through_what_sees_no_card(bench: Bench) -> None:
    bench.pod(a_pod(a_container()))
    bench.pod(a_pod(a_container(env=[variable("NVIDIA_VISIBLE_DEVICES", "void")])))


def test_it_leaves_pods_that_ask_to_the_other_policies(bench: Bench) -> None:
    made = bench.read(bench.pod(a_pod(a_container(units=4, env=[variable("NVIDIA_VISIBLE_DEVICES")]))))
    assert has_exact_environment(made)


@pytest.mark.usefixtures("_installed")
def test_it_leaves_the_listed_namespaces_alone(cluster: Cluster) -> None:
    """Where dcgm-exporter and the GPU operator live."""
    status, answer = cluster.request("POST", "/api/v1/namespaces/kube-system/pods?dryRun=All", EVERY_CARD)
    assert status == HTTPStatus.CREATED, answer


@pytest.mark.usefixtures("_installed")
def test_it_lets_our_agents_see_every_card(cluster: Cluster) -> None:
    pod = {"metadata": {"name": "agent"}, "spec": template(workload("second-scheduler", "vrampack-agent"))["spec"]}
    status, answer = cluster.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", pod)
    assert status == HTTPStatus.CREATED, answer
    assert answer["spec"]["containers"][0]["env"][1] == {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


@pytest.mark.parametrize(("edits", "attack"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_an_attack_gets_through_where_the_policy_is_weaker(
    bench: Bench, edits: dict[str, Edit], attack: Attack
) -> None:
    assert not attack(bench)
    with weakened(bench.cluster, OPTIONAL, edits):
        bench.cluster.wait(lambda: attack(bench), 20, what="the attack gets through")
    bench.cluster.wait(lambda: not attack(bench), 20, what="the shipped policy is in force again")


def test_every_resource_and_validation_is_shown_to_matter() -> None:
    assert without_showing(OPTIONAL, WEAKENINGS) == set()
