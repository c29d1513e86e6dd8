"""A pod that asks for GPU memory names no devices in annotations that NVIDIA's NRI plugin obeys."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.support.admission.attacks import Attack
from tests.support.admission.bench import AdmissionBench, open_admission_bench
from tests.support.admission.pods import admission_container, admission_pod
from tests.support.admission.policies import (
    SHIPPED,
    Edit,
    with_text,
    with_weakened_policies,
    without_operation,
    without_resource,
    without_showing,
    without_validation,
)
from tests.support.control_plane.cluster import ControlPlane

POLICY = "vrampack-nri-guard"
OF_ONE = "nvidia.cdi.k8s.io/container.main"
OF_ALL = "nvidia.cdi.k8s.io"
CARD = "nvidia.com/gpu=all"


def created_with(key: str) -> Attack:
    def attack(bench: AdmissionBench) -> bool:
        return bench.post_pod(admission_pod(annotations={key: CARD}))[0] == HTTPStatus.CREATED

    return attack


def added_by(subresource: str) -> Attack:
    """Before its sandbox is made, or made again."""

    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_pod()
        bench.patch(name, {"metadata": {"annotations": {OF_ONE: CARD}}}, subresource=subresource)
        return OF_ONE in bench.annotations(name)

    return attack


def bound_with(*, legacy: bool) -> Attack:
    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_pod()
        bench.bind(name, annotations={OF_ONE: CARD}, legacy=legacy)
        return OF_ONE in bench.annotations(name)

    return attack


WEAKENINGS: dict[str, tuple[Edit, Attack]] = {
    f"{POLICY}: resource pods": (without_resource("pods"), created_with(OF_ONE)),
    f"{POLICY}: resource pods, update": (without_operation("UPDATE", "pods"), added_by("")),
    f"{POLICY}: resource pods/status": (without_resource("pods/status"), added_by("/status")),
    f"{POLICY}: resource pods/binding": (without_resource("pods/binding"), bound_with(legacy=False)),
    f"{POLICY}: resource bindings": (without_resource("bindings"), bound_with(legacy=True)),
    f"{POLICY}: validation 0": (without_validation(0), created_with(OF_ALL)),
    "the pod's own key is not named": (with_text("(/|$)", "/"), created_with(OF_ALL)),
    "a container's key is not named": (with_text("(/|$)", "$"), created_with(OF_ONE)),
}


@pytest.fixture
def bench(cluster: ControlPlane) -> Iterator[AdmissionBench]:
    with open_admission_bench(cluster) as made:
        yield made


@pytest.mark.parametrize(("edit", "attack"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_an_attack_gets_through_where_the_policy_is_weaker(bench: AdmissionBench, edit: Edit, attack: Attack) -> None:
    assert not attack(bench)
    with with_weakened_policies(bench.cluster, SHIPPED, {POLICY: edit}):
        bench.cluster.wait_until(lambda: attack(bench), 20, what="the attack gets through")
    bench.cluster.wait_until(lambda: not attack(bench), 20, what="the shipped policy is in force again")


def test_it_is_refused_with_field_and_cure(bench: AdmissionBench) -> None:
    status, answer = bench.post_pod(admission_pod(annotations={OF_ONE: CARD}))
    assert status == HTTPStatus.FORBIDDEN
    assert f"metadata.annotations: '{OF_ONE}' names devices" in answer["message"]
    assert "leave the annotation out" in answer["message"]


def test_other_pods_and_other_annotations_are_left_alone(bench: AdmissionBench) -> None:
    """The GPU Operator's own pods have it, and ask for nothing."""
    bench.create_pod(admission_pod(admission_container(), annotations={OF_ONE: CARD}))
    name = bench.create_pod(admission_pod(annotations={"nvidia.cdi.k8s.io.example.com": CARD}))
    assert bench.patch(name, {"metadata": {"annotations": {"team": "a"}}})[0] == HTTPStatus.OK


def test_every_resource_and_validation_is_shown_to_matter() -> None:
    missing = without_showing(WEAKENINGS, SHIPPED)
    assert {part for part in missing if part.startswith(POLICY)} == set()
