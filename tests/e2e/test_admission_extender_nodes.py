"""The extender's account writes three annotations of Nodes, and nothing else of them."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.support.admission.agent_bench import AgentAdmissionBench, open_agent_bench
from tests.support.admission.node_abuses import (
    Abuse,
    a_capacity,
    a_finalizer,
    a_label,
    a_taint,
    annotates,
    gives_its_node_an_owner,
    makes_a_node,
    patches,
    removes_a_node,
    removes_an_annotation,
)
from tests.support.admission.policies import (
    SHIPPED,
    Edit,
    wait_for_policies,
    with_text,
    with_weakened_policies,
    without_operation,
    without_resource,
    without_showing,
    without_validation,
)
from tests.support.control_plane.cluster import ControlPlane

POLICY = "vrampack-extender-nodes"
OWN = (
    "vrampack.dev/kept-from-autoscalers",
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
)


def writes_a_long_text(post: AgentAdmissionBench) -> bool:
    return post.annotate(post.own, OWN[0], "x" * 33) == HTTPStatus.OK


ABUSES: dict[str, Abuse] = {
    "a new node": makes_a_node,
    "a node's end": removes_a_node,
    "an agent's cards": annotates("vrampack.dev/cards"),
    "the operator's cordon": annotates("vrampack.dev/cordoned-cards"),
    "another annotation's removal": removes_an_annotation,
    "another annotation by status": annotates("example.com/there", subresource="/status"),
    "a label": patches(a_label),
    "a finalizer": patches(a_finalizer),
    "an owner": gives_its_node_an_owner,
    "a taint": patches(a_taint),
    "capacity": patches(a_capacity, subresource="/status"),
    "an annotation as large as a Node": writes_a_long_text,
}

WEAKENINGS: dict[str, tuple[Edit, Abuse]] = {
    f"{POLICY}: resource nodes": (without_resource("nodes"), ABUSES["a taint"]),
    f"{POLICY}: resource nodes/status": (without_resource("nodes/status"), ABUSES["capacity"]),
    f"{POLICY}: creation": (without_operation("CREATE", "nodes"), makes_a_node),
    f"{POLICY}: removal": (without_operation("DELETE", "nodes"), removes_a_node),
    f"{POLICY}: validation 0": (without_validation(0), removes_a_node),
    f"{POLICY}: validation 1": (without_validation(1), ABUSES["the operator's cordon"]),
    f"{POLICY}: validation 2": (without_validation(2), ABUSES["a label"]),
    f"{POLICY}: status not compared": (
        with_text("dyn(object).?status == dyn(oldObject).?status", "true"),
        ABUSES["capacity"],
    ),
    f"{POLICY}: validation 3": (without_validation(3), writes_a_long_text),
}


@pytest.fixture
def post(cluster: ControlPlane) -> Iterator[AgentAdmissionBench]:
    with open_agent_bench(cluster, "vrampack-extender", key=OWN[0]) as made:
        yield made
    assert {each.uri.partition("?")[0].split("/")[3] for each in cluster.refusals.drain()} <= {"nodes"}, (
        "what was tried"
    )


@pytest.mark.parametrize("key", OWN)
def test_the_extender_writes_and_removes_what_autoscalers_read(post: AgentAdmissionBench, key: str) -> None:
    for value in ("true", None):
        assert post.annotate(post.own, key, value) == HTTPStatus.OK
        assert post.read(post.own)["metadata"]["annotations"].get(key) == value


@pytest.mark.parametrize("abuse", ABUSES.values(), ids=ABUSES)
def test_the_extender_may_change_nothing_else_of_nodes(post: AgentAdmissionBench, abuse: Abuse) -> None:
    assert not abuse(post)


@pytest.mark.parametrize(("edit", "abuse"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_abuse_gets_through_a_weakened_policy(post: AgentAdmissionBench, edit: Edit, abuse: Abuse) -> None:
    assert not abuse(post)
    with with_weakened_policies(post.cluster, SHIPPED, {POLICY: edit}):
        wait_for_policies(post.cluster, lambda: abuse(post), what="the abuse gets through")
    wait_for_policies(post.cluster, lambda: not abuse(post), what="the shipped policy is in force again")


def test_every_resource_and_validation_is_shown_to_matter() -> None:
    missing = without_showing(WEAKENINGS, SHIPPED)
    assert {part for part in missing if part.startswith(f"{POLICY}: ")} == set()
