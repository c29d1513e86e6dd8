"""An agent's account writes one Lease: that of the node its token names, in its own namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import TypeAlias

import pytest

from tests.support.admission.agent_bench import AGENT, AgentAdmissionBench, new_value, open_agent_bench
from tests.support.admission.bench import MERGE, SYSTEM
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

POLICY = "vrampack-agent-lease"
GROUP = "/apis/coordination.k8s.io/v1"
USAGE = "vrampack.dev/usage"

Theft: TypeAlias = Callable[[AgentAdmissionBench], bool]
"""What a stolen token is tried for; says whether it worked. What it made is gone again."""


def a_lease(post: AgentAdmissionBench, *, of: str = "", holder: str = "", **metadata: Json) -> Json:
    name = f"vrampack-usage-{of or post.own}"
    annotations = {USAGE: new_value()}
    return {
        "metadata": {"name": name, "annotations": annotations, **metadata},
        "spec": {"holderIdentity": holder or post.own},
    }


def creates(post: AgentAdmissionBench, lease: Json, *, namespace: str = SYSTEM, token: str = "") -> bool:
    collection = f"{GROUP}/namespaces/{namespace}/leases"
    status, made = post.cluster.request("POST", collection, lease, token=token or post.token)
    if status == HTTPStatus.CREATED:
        path = f"{collection}/{made['metadata']['name']}"
        # One that a finalizer keeps would answer the next attempt with 409, and that is no refusal.
        post.cluster.request_ok("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
        post.cluster.request_ok("DELETE", path)
    assert status in {HTTPStatus.CREATED, HTTPStatus.FORBIDDEN}, made
    return status == HTTPStatus.CREATED


def creates_another_nodes(post: AgentAdmissionBench) -> bool:
    return creates(post, a_lease(post, of=post.other))


def creates_it_elsewhere(post: AgentAdmissionBench) -> bool:
    return creates(post, a_lease(post), namespace="kube-node-lease")


def creates_it_for_another_holder(post: AgentAdmissionBench) -> bool:
    return creates(post, a_lease(post, holder=post.other))


def creates_without_a_node(post: AgentAdmissionBench) -> bool:
    return creates(post, a_lease(post), token=post.cluster.token(SYSTEM, AGENT))


def creates_with(**metadata: Json) -> Theft:
    return lambda post: creates(post, a_lease(post, **metadata))


def creates_it_with_another_owner(post: AgentAdmissionBench) -> bool:
    """An owner that exists: the garbage collector deletes what a made-up owner has before the test sees it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": post.other, "uid": post.read(post.other)["metadata"]["uid"]}
    return creates(post, a_lease(post, ownerReferences=[owner]))


def takes_the_election(post: AgentAdmissionBench) -> bool:
    """The Lease by which the replicas of the scheduler elect one."""
    collection = f"{GROUP}/namespaces/{SYSTEM}/leases"
    elected = {"metadata": {"name": "vrampack-scheduler"}, "spec": {"holderIdentity": "a-replica"}}
    post.cluster.request("POST", collection, elected)
    path, body = f"{collection}/vrampack-scheduler", {"spec": {"holderIdentity": post.own, "leaseTransitions": 9}}
    status, _ = post.cluster.request("PATCH", path, body, token=post.token, content_type=MERGE)
    post.cluster.request_ok("DELETE", path)
    return status == HTTPStatus.OK


def deletes(name: Callable[[AgentAdmissionBench], str]) -> Theft:
    def delete(post: AgentAdmissionBench) -> bool:
        path = f"{GROUP}/namespaces/{SYSTEM}/leases"
        post.cluster.request_ok("POST", path, {"metadata": {"name": name(post)}})
        status, _ = post.cluster.request("DELETE", f"{path}/{name(post)}", token=post.token)
        post.cluster.request("DELETE", f"{path}/{name(post)}")
        return status == HTTPStatus.OK

    return delete


THEFTS: dict[str, Theft] = {
    "another node's": creates_another_nodes,
    "in another namespace": creates_it_elsewhere,
    "another holder": creates_it_for_another_holder,
    "no node in the token": creates_without_a_node,
    "the scheduler's election": takes_the_election,
    "the election's end": deletes(lambda _: "vrampack-scheduler"),
    "its own one's end": deletes(lambda post: f"vrampack-usage-{post.own}"),
    "a finalizer": creates_with(finalizers=["example.com/stay"]),
    "another annotation": creates_with(annotations={"example.com/else": "x"}),
    "an owner": creates_it_with_another_owner,
}

WEAKENINGS: dict[str, tuple[Edit, Theft]] = {
    f"{POLICY}: resource leases": (without_resource("leases"), creates_another_nodes),
    f"{POLICY}: creation": (without_operation("CREATE", "leases"), creates_another_nodes),
    f"{POLICY}: update": (without_operation("UPDATE", "leases"), takes_the_election),
    f"{POLICY}: removal": (without_operation("DELETE", "leases"), THEFTS["the election's end"]),
    f"{POLICY}: validation 0": (without_validation(0), creates_another_nodes),
    f"{POLICY}: validation 0, namespace": (
        with_text(f"request.namespace == '{SYSTEM}'", "true"),
        creates_it_elsewhere,
    ),
    f"{POLICY}: validation 1": (without_validation(1), creates_it_for_another_holder),
    f"{POLICY}: validation 2": (without_validation(2), THEFTS["a finalizer"]),
    f"{POLICY}: validation 2, owner": (without_validation(2), THEFTS["an owner"]),
}


@pytest.fixture
def post(cluster: ControlPlane) -> Iterator[AgentAdmissionBench]:
    with open_agent_bench(cluster) as made:
        yield made


def test_an_agent_writes_the_lease_of_its_node(post: AgentAdmissionBench) -> None:
    """Made, and written again; its Node may own it, so that it goes with it."""
    collection = f"{GROUP}/namespaces/{SYSTEM}/leases"
    uid = post.read(post.own)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": post.own, "uid": uid}
    lease = a_lease(post, ownerReferences=[owner])
    assert post.cluster.request("POST", collection, lease, token=post.token)[0] == HTTPStatus.CREATED
    path = f"{collection}/vrampack-usage-{post.own}"
    body = {"metadata": {"annotations": {USAGE: "later"}}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    assert post.cluster.request("PATCH", path, body, token=post.token, content_type=MERGE)[0] == HTTPStatus.OK
    status, read = post.cluster.request("GET", path, token=post.token)
    assert (status, read["metadata"]["annotations"][USAGE]) == (HTTPStatus.OK, "later")
    assert post.cluster.request("PUT", path, read, token=post.token)[0] == HTTPStatus.OK
    post.cluster.request_ok("DELETE", path)


@pytest.mark.parametrize("theft", THEFTS.values(), ids=THEFTS)
def test_an_agent_writes_no_other_lease(post: AgentAdmissionBench, theft: Theft) -> None:
    assert not theft(post)


@pytest.mark.parametrize(("edit", "theft"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_a_stolen_lease_gets_through_a_weakened_policy(post: AgentAdmissionBench, edit: Edit, theft: Theft) -> None:
    assert not theft(post)
    with with_weakened_policies(post.cluster, SHIPPED, {POLICY: edit}):
        wait_for_policies(post.cluster, lambda: theft(post), what="the theft gets through")
    wait_for_policies(post.cluster, lambda: not theft(post), what="the shipped policy is in force again")


def test_every_resource_and_validation_about_leases_is_shown_to_matter() -> None:
    missing = without_showing(WEAKENINGS, SHIPPED)
    assert {part for part in missing if part.startswith(f"{POLICY}: ")} == set()
