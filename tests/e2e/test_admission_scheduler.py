"""The second-scheduler shape: pods asking for GPU memory come to our scheduler, and to no other."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from extender.autoscaling.card_shortages import PodShape
from extender.autoscaling.placeholder_pods import build_placeholder, exclude_agents
from tests.support.admission.attacks import (
    Attack,
    default_scheduler,
    names_its_node,
    names_its_node_for_an_init_container,
    other_scheduler,
)
from tests.support.admission.bench import AdmissionBench
from tests.support.admission.pods import admission_container, admission_pod, has_exact_environment
from tests.support.admission.policies import (
    SECOND_SCHEDULER,
    Edit,
    wait_for_policies,
    with_text,
    with_validation_switched_off,
    with_variable,
    with_weakened_policies,
    without_resource,
    without_showing,
    without_validation,
)
from tests.support.control_plane.access_denials import ACCOUNT, NAMESPACE
from tests.support.control_plane.cluster import Json
from tests.support.manifest_builders import RESOURCE
from tests.support.processes import REPOSITORY
from vrampack.cards.request import CardRequest
from vrampack.cards.well_known import PLACEHOLDER_NAMESPACE

EXTENDER_USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
SET, GUARD = "vrampack-scheduler-set", "vrampack-scheduler-guard"
ATTACKS: dict[str, Attack] = {
    "default scheduler": default_scheduler,
    "other scheduler": other_scheduler,
    "names its node": names_its_node,
}

WEAKENINGS: dict[str, tuple[dict[str, Edit], Attack]] = {
    f"{GUARD}: resource pods": ({GUARD: without_resource("pods")}, other_scheduler),
    f"{GUARD}: validation 0": ({GUARD: without_validation(0)}, other_scheduler),
    f"{GUARD}: validation 1": ({GUARD: without_validation(1)}, names_its_node),
    f"{GUARD}: init containers not looked at": (
        {
            GUARD: with_text(
                "object.spec.containers + object.spec.?initContainers.orValue([])", "object.spec.containers"
            )
        },
        names_its_node_for_an_init_container,
    ),
    f"{SET}: switched off": ({SET: with_validation_switched_off, GUARD: without_validation(0)}, default_scheduler),
}


@pytest.fixture
def bench(tenant: AdmissionBench) -> Iterator[AdmissionBench]:
    with tenant.with_node():
        yield tenant


@pytest.mark.parametrize("given", [{}, {"schedulerName": "default-scheduler"}, {"schedulerName": ""}], ids=str)
def test_a_pod_that_chose_no_scheduler_gets_ours(bench: AdmissionBench, given: Json) -> None:
    made = bench.read_pod(bench.create_pod(admission_pod(**given)))
    assert made["spec"]["schedulerName"] == "vrampack"
    assert has_exact_environment(made)


def test_a_pod_that_chose_our_scheduler_keeps_it(bench: AdmissionBench) -> None:
    assert (
        bench.read_pod(bench.create_pod(admission_pod(schedulerName="vrampack")))["spec"]["schedulerName"] == "vrampack"
    )


def test_pod_gets_our_scheduler_if_only_an_init_container_asks(bench: AdmissionBench) -> None:
    made = bench.read_pod(
        bench.create_pod(admission_pod(admission_container(), init=[admission_container("init", units=2)]))
    )
    assert made["spec"]["schedulerName"] == "vrampack"


@pytest.mark.parametrize("name", ["default-scheduler", "someone-else"])
def test_a_pod_without_gpu_memory_keeps_its_scheduler_and_node(bench: AdmissionBench, name: str) -> None:
    made = bench.read_pod(
        bench.create_pod(admission_pod(admission_container(), schedulerName=name, nodeName=bench.node))
    )
    assert (made["spec"]["schedulerName"], made["spec"]["nodeName"]) == (name, bench.node)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_no_attack_bypasses_the_scheduler_policy(bench: AdmissionBench, attack: Attack) -> None:
    assert not attack(bench)


def test_the_extender_makes_placeholders_where_no_pod_may_do_harm(bench: AdmissionBench) -> None:
    """With the right that docs/recipes/placeholders.yaml gives it, and past the policies. Not even an administrator makes another pod there."""
    cluster = bench.cluster
    cluster.kubectl("apply", "--validate=strict", "-f", REPOSITORY / "docs" / "recipes" / "placeholders.yaml")
    may_make = ("auth", "can-i", "create", "pods", "-n", PLACEHOLDER_NAMESPACE, f"--as={EXTENDER_USER}")
    cluster.wait_until(lambda: cluster.kubectl(*may_make, check=False).returncode == 0, what="the right is in force")
    shape = PodShape(CardRequest(12), 12, (b"null", b"null", b"null"))
    placeholder = build_placeholder(shape, {RESOURCE: 12, "cpu": 1500}, exclude_agents())
    harmful = {**placeholder, "spec": placeholder["spec"] | {"hostNetwork": True}}
    pods = f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods"
    assert cluster.request("POST", pods, harmful)[0] == HTTPStatus.FORBIDDEN
    assert cluster.request("POST", pods, placeholder, token=bench.extender)[0] == HTTPStatus.CREATED
    assert cluster.request("DELETE", f"{pods}/{shape.name}", token=bench.extender)[0] == HTTPStatus.OK


def test_the_refusals_name_field_and_fix(bench: AdmissionBench) -> None:
    status, answer = bench.post_pod(admission_pod(schedulerName="someone-else"))
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "spec.schedulerName: 'someone-else'" in answer["message"]
    assert "use one of: vrampack" in answer["message"]
    status, answer = bench.post_pod(admission_pod(nodeName=bench.node))
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "spec.nodeName: " in answer["message"]
    assert "spec.nodeSelector" in answer["message"]


def test_operator_may_allow_another_scheduler(bench: AdmissionBench) -> None:
    """Another scheduler that asks the extender is added in one line."""
    longer = with_variable("schedulers", "['vrampack', 'someone-else']")
    with with_weakened_policies(bench.cluster, SECOND_SCHEDULER, {GUARD: longer}):
        bench.cluster.wait_until(lambda: other_scheduler(bench), what="the longer list is in force")
        status, answer = bench.post_pod(admission_pod(schedulerName="a-third"))
        assert status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert "use one of: vrampack, someone-else" in answer["message"]
    bench.cluster.wait_until(lambda: not other_scheduler(bench), what="the shipped list is in force")


@pytest.mark.parametrize(("edits", "attack"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_attack_gets_through_a_weakened_policy(bench: AdmissionBench, edits: dict[str, Edit], attack: Attack) -> None:
    assert not attack(bench)
    with with_weakened_policies(bench.cluster, SECOND_SCHEDULER, edits):
        wait_for_policies(bench.cluster, lambda: attack(bench), what="the attack gets through")
    attacks = (attack, *ATTACKS.values())  # all of them: one policy may be back before the other
    bench.cluster.wait_until(
        lambda: gets_our_scheduler(bench) and not any(each(bench) for each in attacks),
        20,
        what="the shipped policies are in force again",
    )


def gets_our_scheduler(bench: AdmissionBench) -> bool:
    """Whether a pod that chose none does: what is only absent lets no attack through."""
    status, made = bench.post_pod(admission_pod(schedulerName="default-scheduler"))
    return status == HTTPStatus.CREATED and made["spec"]["schedulerName"] == "vrampack"


def test_every_resource_and_validation_is_shown_to_matter() -> None:
    assert without_showing(WEAKENINGS, SECOND_SCHEDULER) == set()
