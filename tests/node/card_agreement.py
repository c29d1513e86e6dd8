"""Whether all sources agree on which pod holds which card: records, kubelet, and the containers themselves."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from tests.node.api_reader import Json
from tests.node.node import LiveNode
from tests.node.podresources import list_pod_resources
from tests.node.pods import RESOURCE, VARIABLES, annotated

Held = dict[tuple[str, str], int]
"""Units by pod and card."""


def inspect_holdings(node: LiveNode) -> Held:
    """As `kubectl inspect cgpu` shows."""
    return {(pod["name"], card["uuid"]): pod["usedGPU"] for card in read_published_cards(node) for pod in card["pods"]}


def list_kubelet_holdings() -> Held:
    """As kubelet's pod-resources socket lists them: an id names its card."""
    return dict(
        Counter((each.pod, id_.partition("::")[0]) for each in list_pod_resources(RESOURCE) for id_ in each.ids)
    )


def read_published_cards(node: LiveNode) -> list[Json]:
    """What is published, with what is counted on it."""
    (seen,) = json.loads(node.kubectl("inspect", "cgpu", "-o", "json").stdout)["nodes"] or [{"devs": []}]
    return list(seen["devs"])


def assert_environment_matches(node: LiveNode, name: str, *, namespace: str = "default") -> None:
    """I7: equal in every container of the pod that asks, without correction."""
    pod = node.get("pod", name, "-n", namespace)
    for container in pod["spec"]["containers"]:
        if RESOURCE in container.get("resources", {}).get("limits", {}):
            seen = node.environment(name, container=container["name"], namespace=namespace)
            assert {variable: seen.get(variable) for variable in VARIABLES} == annotated(pod, container["name"])


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """One start of a container."""

    container: str
    id: str
    restarts: int


def list_container_starts(node: LiveNode, name: str) -> list[RunningContainer]:
    """The containers of a pod as they run now; equal twice means that nothing disturbed them in between."""
    pod = node.get("pod", name) or {"status": {}}
    statuses = pod["status"].get("containerStatuses", [])
    return [
        RunningContainer(each["name"], each["containerID"], each["restartCount"])
        for each in statuses
        if "running" in each["state"]
    ]
