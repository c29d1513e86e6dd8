"""An agent's account writes events that say whose they are, about pods and about its own Node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import TypeAlias

import pytest

from tests.support.admission.agent_bench import AGENT, AgentAdmissionBench, new_value, open_agent_bench
from tests.support.admission.bench import SYSTEM
from tests.support.admission.policies import (
    SHIPPED,
    Edit,
    wait_for_policies,
    with_variable,
    with_weakened_policies,
    without_operation,
    without_resource,
    without_showing,
    without_validation,
)
from tests.support.control_plane.cluster import ControlPlane, Json

POLICY = "vrampack-agent-events"

Lie: TypeAlias = Callable[[AgentAdmissionBench], bool]
"""An event that a stolen token is tried for; says whether it was written."""


def an_event(kind: str, name: str, **fields: Json) -> Json:
    """As agents of every version write it."""
    return {
        "metadata": {"name": f"{name}.{new_value()}", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": kind, "name": name, "namespace": "default", "uid": "uid-p"},
        "reason": "GPUMemoryStartRefused",
        "source": {"component": AGENT},
        "reportingComponent": AGENT,
        "message": "m" * 1024,
        "type": "Warning",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        **fields,
    }


def writes(post: AgentAdmissionBench, event: Json, *, token: str = "") -> bool:
    """Whether it would be stored: one with a finalizer could not be removed so soon."""
    path = "/api/v1/namespaces/default/events?dryRun=All"
    return post.cluster.request("POST", path, event, token=token or post.token)[0] == HTTPStatus.CREATED


def says(kind: str = "Pod", name: str = "p", **fields: Json) -> Lie:
    return lambda post: writes(post, an_event(kind, name, **fields))


def speaks_of_another_node(post: AgentAdmissionBench) -> bool:
    return writes(post, an_event("Node", post.other))


def speaks_of_a_node_without_one(post: AgentAdmissionBench) -> bool:
    return writes(post, an_event("Node", post.own), token=post.cluster.token(SYSTEM, AGENT))


def changes_an_event(post: AgentAdmissionBench) -> bool:
    path = "/api/v1/namespaces/default/events"
    name = post.cluster.request_ok("POST", path, an_event("Pod", "p"))["metadata"]["name"]
    _, there = post.cluster.request("GET", f"{path}/{name}")
    status, _ = post.cluster.request("PUT", f"{path}/{name}", {**there, "message": new_value()}, token=post.token)
    post.cluster.request_ok("DELETE", f"{path}/{name}")
    return status == HTTPStatus.OK


def has(**fields: Json) -> Lie:
    """An event about a pod, with this in its metadata."""

    def lie(post: AgentAdmissionBench) -> bool:
        event = an_event("Pod", "p")
        event["metadata"] |= fields
        return writes(post, event)

    return lie


def is_about(**fields: Json) -> Lie:
    involved = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default"}
    return says(involvedObject=involved | fields)


BOOK = "b" * 100_000
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
MANAGED = {
    "manager": "m",
    "operation": "Apply",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {f"f:{BOOK}": {}},
}

LIES: dict[str, Lie] = {
    "another node": speaks_of_another_node,
    "no node in the token": speaks_of_a_node_without_one,
    "another kind": says("Deployment"),
    "as kubelet": says(source={"component": "kubelet"}),
    "as reported by kubelet": says(reportingComponent="kubelet"),
    "a reason of others": says(reason="Killing"),
    "a book": says(message="m" * 1025),
    "a change": changes_an_event,
    "a finalizer": has(finalizers=["example.com/never"]),
    "an owner": has(ownerReferences=[OWNER]),
    "labels": has(labels={"team": "a"}),
    "a book of annotations": has(annotations={"book": BOOK}),
    "a book of managers": has(managedFields=[MANAGED]),
    "a book as the field's path": is_about(fieldPath=BOOK),
    "a book as the uid": is_about(uid=BOOK),
    "a book as the reason": says(reason=f"GPUMemory{BOOK}"),
    "a book as the type": says(type=BOOK),
    "a book as the host": says(source={"component": AGENT, "host": BOOK}),
    "a book as the instance": says(reportingInstance=BOOK),
    "a book as a related object": says(related={"kind": "Pod", "name": BOOK}),
}

WEAKENINGS: dict[str, tuple[Edit, Lie]] = {
    f"{POLICY}: resource events": (without_resource("events"), speaks_of_another_node),
    f"{POLICY}: creation": (without_operation("CREATE", "events"), speaks_of_another_node),
    f"{POLICY}: update": (without_operation("UPDATE", "events"), changes_an_event),
    f"{POLICY}: validation 0": (without_validation(0), speaks_of_another_node),
    f"{POLICY}: validation 1": (without_validation(1), LIES["as kubelet"]),
    f"{POLICY}: validation 1, reason": (without_validation(1), LIES["a reason of others"]),
    f"{POLICY}: validation 2": (without_validation(2), LIES["a finalizer"]),
    f"{POLICY}: validation 2, managers": (without_validation(2), LIES["a book of managers"]),
    f"{POLICY}: validation 3": (without_validation(3), LIES["a book as the field's path"]),
    f"{POLICY}: validation 3, length": (with_variable("texts", "[]"), LIES["a book as the uid"]),
}


@pytest.fixture
def post(cluster: ControlPlane) -> Iterator[AgentAdmissionBench]:
    with open_agent_bench(cluster) as made:
        yield made


def test_an_agent_writes_events_about_pods_and_its_node(post: AgentAdmissionBench) -> None:
    assert writes(post, an_event("Pod", "p"))
    assert writes(post, an_event("Node", post.own))


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_an_agent_writes_no_other_event(post: AgentAdmissionBench, lie: Lie) -> None:
    assert not lie(post)


@pytest.mark.parametrize(("edit", "lie"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_a_false_event_gets_through_a_weakened_policy(post: AgentAdmissionBench, edit: Edit, lie: Lie) -> None:
    assert not lie(post)
    with with_weakened_policies(post.cluster, SHIPPED, {POLICY: edit}):
        wait_for_policies(post.cluster, lambda: lie(post), what="the lie gets through")
    wait_for_policies(post.cluster, lambda: not lie(post), what="the shipped policy is in force again")


def test_every_resource_and_validation_about_events_is_shown_to_matter() -> None:
    missing = without_showing(WEAKENINGS, SHIPPED)
    assert {part for part in missing if part.startswith(f"{POLICY}: ")} == set()
