"""What a thief of a token would do to Nodes."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeAlias

from tests.support.admission.agent_bench import AgentAdmissionBench, new_value
from tests.support.admission.bench import MERGE
from tests.support.control_plane.cluster import Json

Abuse: TypeAlias = Callable[[AgentAdmissionBench], bool]
"""What a stolen token is good for; says whether it was."""


def annotates(key: str, *, subresource: str = "") -> Abuse:
    return lambda post: post.annotate(post.own, key, new_value(), subresource=subresource) == HTTPStatus.OK


def removes_an_annotation(post: AgentAdmissionBench) -> bool:
    body = {"metadata": {"annotations": {"example.com/there": new_value()}}}
    post.cluster.request_ok("PATCH", f"/api/v1/nodes/{post.own}", body, content_type=MERGE)
    return post.annotate(post.own, "example.com/there", None) == HTTPStatus.OK


def patches(make: Callable[[str], Json], *, subresource: str = "") -> Abuse:
    """A patch with something new each time: policies ignore one that changes nothing."""
    return lambda post: post.patch(post.own, make(new_value()), subresource=subresource) == HTTPStatus.OK


def makes_a_node(post: AgentAdmissionBench) -> bool:
    status, made = post.cluster.request(
        "POST", "/api/v1/nodes", {"metadata": {"generateName": "made-up-"}}, token=post.token
    )
    if status == HTTPStatus.CREATED:
        post.cluster.request_ok("DELETE", f"/api/v1/nodes/{made['metadata']['name']}")
    return status == HTTPStatus.CREATED


def removes_a_node(post: AgentAdmissionBench) -> bool:
    name = post.cluster.request_ok("POST", "/api/v1/nodes", {"metadata": {"generateName": "short-lived-"}})["metadata"][
        "name"
    ]
    return post.cluster.request("DELETE", f"/api/v1/nodes/{name}", token=post.token)[0] == HTTPStatus.OK


def gives_its_node_an_owner(post: AgentAdmissionBench) -> bool:
    """An owner that exists: the garbage collector would delete a node with a made-up owner, and a deleted node refuses everything."""
    path, metadata = f"/api/v1/nodes/{post.own}", post.read(post.other)["metadata"]
    post.cluster.request_ok("PATCH", path, {"metadata": {"ownerReferences": None}}, content_type=MERGE)
    owner = {"apiVersion": "v1", "kind": "Node", "name": post.other, "uid": metadata["uid"]}
    return post.patch(post.own, {"metadata": {"ownerReferences": [owner]}}) == HTTPStatus.OK


def a_label(new: str) -> Json:
    return {"metadata": {"labels": {"gpu": new}}}


def a_finalizer(new: str) -> Json:
    return {"metadata": {"finalizers": [f"example.com/{new}"]}}


def a_taint(new: str) -> Json:
    return {"spec": {"taints": [{"key": f"example.com/{new}", "effect": "NoSchedule"}]}}


def a_capacity(new: str) -> Json:
    return {"status": {"capacity": {"aliyun.com/gpu-mem": str(int(new, 16))}}}
