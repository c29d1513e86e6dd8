"""Pods that no extender placed, or whose containers nobody told their card: none starts, and each is told why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.manifests.kustomization import MANIFESTS
from tests.node.agreement import running
from tests.node.controlplane import NODE_NAME
from tests.node.node import Json, Node
from tests.node.pods import a_pod

ENVIRONMENT = [MANIFESTS / "admission" / f"environment-{name}.yaml" for name in ("inject", "guard")]
SCHEDULERS = [MANIFESTS / "admission" / "second-scheduler" / f"scheduler-{name}.yaml" for name in ("set", "guard")]


TOLD = "visible-devices.vrampack.dev/main"


@contextmanager
def before(node: Node, files: list[Path], pod: Json) -> Iterator[None]:
    """As if these policies had not come when the pod is made; the API server takes a moment to know, both times."""
    named = [option for file in files for option in ("-f", str(file))]
    node.kubectl("delete", *named)
    try:
        node.wait(lambda: (made := _as_made(node, pod)) and TOLD not in made, what="such a pod is left alone")
        yield
    finally:
        node.kubectl("apply", *named)
        node.wait(lambda: TOLD in _as_made(node, a_pod("probe")), what="new pods are told their card")


def said_about(node: Node, name: str) -> str:
    events = node.all("events", "-n", "default", "--field-selector", f"involvedObject.name={name}")
    return " / ".join(f"{each['reason']}: {each['message']}" for each in events)


def test_a_static_pod_gets_no_card(node: Node) -> None:
    """It passes neither admission nor a scheduler; kubelet hands it devices, and the fence stands before its start."""
    file = node.add_static_pod("static", a_pod("static", main=4))
    try:
        node.wait(lambda: "a static pod passes no scheduler" in said_about(node, "static-node"), what="it is told why")
        assert running(node, "static-node") == []
    finally:
        file.unlink()
        node.wait(lambda: node.get("pod", "static-node") is None, what="it is gone")


def test_a_pod_made_before_the_policy_is_not_bound(node: Node) -> None:
    early = a_pod("early")
    with before(node, ENVIRONMENT, early):
        node.apply(early)
    text = "was created before the admission policy, recreate it"
    node.wait(lambda: text in said_about(node, "early"), what=lambda: said_about(node, "early"))
    assert "nodeName" not in node.get("pod", "early")["spec"]


def test_a_pod_that_names_its_node_is_not_started(node: Node) -> None:
    """Past every policy, as before the install: kubelet is handed it, and it has no record."""
    placed = a_pod("placed")
    placed["spec"]["nodeName"] = NODE_NAME
    with before(node, [*ENVIRONMENT, *SCHEDULERS], placed):
        node.apply(placed)
    node.wait(lambda: "GPUMemoryStartRefused" in said_about(node, "placed"), what=lambda: said_about(node, "placed"))
    assert running(node, "placed") == []


def _as_made(node: Node, pod: Json) -> str:
    """What the API server would make of it, as text; empty while it refuses it."""
    asked = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    return node.kubectl(*asked, input=json.dumps(pod), check=False).stdout
