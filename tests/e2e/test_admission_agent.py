"""An agent's account writes three annotations, two labels and a condition of its own Node.

All agents share one account: the token tells them apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http import HTTPStatus

import pytest

from tests.support.admission.agent_bench import AGENT, AgentAdmissionBench, new_value, open_agent_bench
from tests.support.admission.bench import CARDS, MERGE, STRATEGIC, SYSTEM
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
from tests.support.control_plane.cluster import ControlPlane, Json

POLICY = "vrampack-agent"
CONDITION = "VrampackCardsHealthy"
OBSERVED = json.dumps({"v": 1, "pods": {}})


def writes_another_node(post: AgentAdmissionBench) -> bool:
    return post.annotate(post.other, "vrampack.dev/cards", CARDS) == HTTPStatus.OK


def writes_another_status(post: AgentAdmissionBench) -> bool:
    return post.annotate(post.other, "vrampack.dev/cards", CARDS, subresource="/status") == HTTPStatus.OK


def writes_without_a_node(post: AgentAdmissionBench) -> bool:
    """A token that names no node, which any account that may create tokens can get."""
    token = post.cluster.token(SYSTEM, AGENT)
    body = {"metadata": {"annotations": {"vrampack.dev/cards": "{}"}}}
    return post.patch(post.own, body, token=token) == HTTPStatus.OK


def a_condition(kind: str = CONDITION, **fields: str) -> Callable[[str], Json]:
    """Merged into the list by its type, as client-go and we write conditions."""
    return lambda new: {"status": {"conditions": [{"type": kind, "status": "False", "reason": f"R{new}", **fields}]}}


def writes_a_condition(make: Callable[[str], Json]) -> Abuse:
    def write(post: AgentAdmissionBench) -> bool:
        return post.patch(post.own, make(new_value()), subresource="/status", content_type=STRATEGIC) == HTTPStatus.OK

    return write


def drops_conditions_of_others(post: AgentAdmissionBench) -> bool:
    post.cluster.request_ok(
        "PATCH", f"/api/v1/nodes/{post.own}/status", a_condition("Ready")(new_value()), content_type=STRATEGIC
    )
    return post.patch(post.own, {"status": {"conditions": None}}, subresource="/status") == HTTPStatus.OK


def has_its_condition_twice(post: AgentAdmissionBench) -> bool:
    twice = {"status": {"conditions": [{"type": CONDITION, "status": status} for status in ("True", "False")]}}
    return post.patch(post.own, twice, subresource="/status") == HTTPStatus.OK


ABUSES: dict[str, Abuse] = {
    "another node": writes_another_node,
    "another node by its status": writes_another_status,
    "no node in the token": writes_without_a_node,
    "a new node": makes_a_node,
    "a node's end": removes_a_node,
    "the operator's cordon": annotates("vrampack.dev/cordoned-cards"),
    "the operator's cordon by status": annotates("vrampack.dev/cordoned-cards", subresource="/status"),
    "another annotation": annotates("example.com/else"),
    "another annotation's removal": removes_an_annotation,
    "another annotation's change": annotates("example.com/there"),
    "a label": patches(a_label),
    "a finalizer": patches(a_finalizer),
    "an owner": gives_its_node_an_owner,
    "a taint": patches(a_taint),
    "capacity": patches(a_capacity, subresource="/status"),
    "a label by status": patches(a_label, subresource="/status"),
    "another condition": writes_a_condition(a_condition("Ready")),
    "the end of other conditions": drops_conditions_of_others,
    "its condition twice": has_its_condition_twice,
    "a condition as large as a Node": writes_a_condition(a_condition(message="m" * 1025)),
    "a reason without end": writes_a_condition(a_condition(reason="r" * 129)),
}

WEAKENINGS: dict[str, tuple[Edit, Abuse]] = {
    f"{POLICY}: resource nodes": (without_resource("nodes"), writes_another_node),
    f"{POLICY}: resource nodes/status": (without_resource("nodes/status"), patches(a_capacity, subresource="/status")),
    f"{POLICY}: creation": (without_operation("CREATE", "nodes"), makes_a_node),
    f"{POLICY}: removal": (without_operation("DELETE", "nodes"), removes_a_node),
    f"{POLICY}: validation 0": (without_validation(0), writes_another_node),
    f"{POLICY}: validation 0, no node": (without_validation(0), writes_without_a_node),
    f"{POLICY}: validation 1": (without_validation(1), ABUSES["the operator's cordon"]),
    f"{POLICY}: validation 1, removal": (without_validation(1), ABUSES["another annotation's removal"]),
    f"{POLICY}: validation 2": (without_validation(2), ABUSES["a label"]),
    f"{POLICY}: spec not compared": (with_text("object.?spec == oldObject.?spec", "true"), patches(a_taint)),
    f"{POLICY}: validation 3": (without_validation(3), patches(a_capacity, subresource="/status")),
    f"{POLICY}: status not compared": (
        with_text("variables.foreignStatus.size() == 0", "true"),
        patches(a_capacity, subresource="/status"),
    ),
    f"{POLICY}: conditions not compared": (
        with_text("variables.foreignConditionsBefore == variables.foreignConditionsAfter", "true"),
        ABUSES["another condition"],
    ),
    f"{POLICY}: validation 4": (without_validation(4), ABUSES["its condition twice"]),
    f"{POLICY}: validation 4, size": (without_validation(4), ABUSES["a condition as large as a Node"]),
    f"{POLICY}: finalizers not compared": (
        with_text("object.metadata.?finalizers == oldObject.metadata.?finalizers", "true"),
        ABUSES["a finalizer"],
    ),
    f"{POLICY}: owners not compared": (
        with_text("object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences", "true"),
        ABUSES["an owner"],
    ),
}


@pytest.fixture
def post(cluster: ControlPlane) -> Iterator[AgentAdmissionBench]:
    with open_agent_bench(cluster) as made:
        yield made


@pytest.mark.parametrize("key", ["vrampack.dev/cards", "vrampack.dev/observed", "vrampack.dev/refused"])
def test_an_agent_writes_changes_and_removes_its_own_annotations(post: AgentAdmissionBench, key: str) -> None:
    for value in (CARDS, OBSERVED, None):
        assert post.annotate(post.own, key, value) == HTTPStatus.OK
        assert post.read(post.own)["metadata"]["annotations"].get(key) == value


@pytest.mark.parametrize("key", ["vrampack.dev/enforcement", "vrampack.dev/injection"])
def test_an_agent_sets_its_enforcement_and_injection_labels(post: AgentAdmissionBench, key: str) -> None:
    """Beside labels of others, which stay."""
    post.cluster.request_ok("PATCH", f"/api/v1/nodes/{post.own}", a_label("there"), content_type=MERGE)
    for value in ("watch", "native", None):
        assert post.patch(post.own, {"metadata": {"labels": {key: value}}}) == HTTPStatus.OK
        assert post.read(post.own)["metadata"]["labels"].get(key) == value
        assert post.read(post.own)["metadata"]["labels"]["gpu"] == "there"


def test_an_agent_sets_its_card_health_condition(post: AgentAdmissionBench) -> None:
    """Beside those of kubelet, which stay as they are."""
    path = f"/api/v1/nodes/{post.own}/status"
    post.cluster.request_ok("PATCH", path, a_condition("Ready")("before"), content_type=STRATEGIC)
    for reason in ("sick", "well"):
        body = a_condition(reason=reason, message="m" * 1024)("")
        assert post.patch(post.own, body, subresource="/status", content_type=STRATEGIC) == HTTPStatus.OK
        there = {item["type"]: item["reason"] for item in post.read(post.own)["status"]["conditions"]}
        assert there == {"Ready": "Rbefore", CONDITION: reason}


def removes_a_label(post: AgentAdmissionBench) -> bool:
    post.cluster.request_ok("PATCH", f"/api/v1/nodes/{post.own}", a_label(new_value()), content_type=MERGE)
    return post.patch(post.own, {"metadata": {"labels": {"gpu": None}}}) == HTTPStatus.OK


def changes_a_label(post: AgentAdmissionBench) -> bool:
    post.cluster.request_ok("PATCH", f"/api/v1/nodes/{post.own}", a_label(new_value()), content_type=MERGE)
    return post.patch(post.own, a_label(new_value())) == HTTPStatus.OK


@pytest.mark.parametrize("abuse", [removes_a_label, changes_a_label])
def test_an_agent_may_not_change_labels_of_others(post: AgentAdmissionBench, abuse: Abuse) -> None:
    assert not abuse(post)


@pytest.mark.parametrize("abuse", ABUSES.values(), ids=ABUSES)
def test_an_agent_may_change_nothing_else_of_nodes(post: AgentAdmissionBench, abuse: Abuse) -> None:
    assert not abuse(post)


def test_refusal_names_the_key_the_agent_may_not_write(post: AgentAdmissionBench) -> None:
    body = {"metadata": {"annotations": {"vrampack.dev/cordoned-cards": "all"}}}
    path = f"/api/v1/nodes/{post.own}"
    status, answer = post.cluster.request("PATCH", path, body, token=post.token, content_type=MERGE)
    assert status == HTTPStatus.FORBIDDEN
    assert "'vrampack.dev/cordoned-cards'" in answer["message"]


def test_other_writers_of_nodes_are_not_restricted(post: AgentAdmissionBench) -> None:
    """The operator cordons a card; who may write a Node at all is decided by RBAC."""
    body = {"metadata": {"annotations": {"vrampack.dev/cordoned-cards": "all"}, "labels": {"gpu": "yes"}}}
    post.cluster.request_ok("PATCH", f"/api/v1/nodes/{post.own}", body, content_type=MERGE)


@pytest.mark.parametrize(("edit", "abuse"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_abuse_gets_through_a_weakened_policy(post: AgentAdmissionBench, edit: Edit, abuse: Abuse) -> None:
    assert not abuse(post)
    with with_weakened_policies(post.cluster, SHIPPED, {POLICY: edit}):
        wait_for_policies(post.cluster, lambda: abuse(post), what="the abuse gets through")
    wait_for_policies(post.cluster, lambda: not abuse(post), what="the shipped policy is in force again")


def test_every_resource_and_validation_is_shown_to_matter() -> None:
    missing = without_showing(WEAKENINGS, SHIPPED)
    assert {part for part in missing if part.startswith(f"{POLICY}: ")} == set()
