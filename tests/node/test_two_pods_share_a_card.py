"""The founding story on a whole node: two pods of 4 units on one card of 15, and everybody tells the same."""

from __future__ import annotations

import json
from collections import Counter

from tests.fakes.nvml.machine import Machine
from tests.manifests.kustomization import MANIFESTS
from tests.node.node import Json, Node
from tests.node.podresources import given
from tests.node.pods import RESOURCE, VARIABLES, annotated

EXAMPLE = MANIFESTS / "examples" / "statefulset.yaml"
APP = "app-3g-v1"
PODS = (f"{APP}-0", f"{APP}-1")


def test_two_pods_share_one_card_and_leave_it_free(node: Node, cards: Machine) -> None:
    (gpu,) = cards.gpus
    node.wait(lambda: _devs(node), what="the node's card is published")
    node.kubectl("apply", "-f", EXAMPLE)
    node.wait_ready(f"app={APP}")

    for name in PODS:
        pod, seen = node.get("pod", name), node.environment(name)
        assert pod["spec"]["schedulerName"] == "vrampack"
        assert {variable: seen[variable] for variable in VARIABLES} == annotated(pod, APP)
        assert seen["NVIDIA_VISIBLE_DEVICES"] == gpu.uuid
        assert seen["ALIYUN_COM_GPU_MEM_CONTAINER"] == "4"
        assert seen["ALIYUN_COM_GPU_MEM_DEV"] == "15"
        assert seen["NVIDIA_GPU_MEMORY_LIMIT"] == "4301"  # 16130 * 4 / 15, rounded down

    assert _held(node) == _given() == {(name, gpu.uuid): 4 for name in PODS}
    table = node.kubectl("inspect", "cgpu").stdout
    assert "8/15 (53%)" in table

    node.kubectl("delete", "-f", EXAMPLE, "--wait")
    node.wait(lambda: not node.all("pods"), what="the app is gone")
    node.wait(lambda: not _given(), what="kubelet has given nothing away")
    assert _held(node) == {}
    assert "0/15 (0%)" in node.kubectl("inspect", "cgpu").stdout


def _held(node: Node) -> dict[tuple[str, str], int]:
    """Units by pod and card, as `kubectl inspect cgpu` tells."""
    return {(pod["name"], card["uuid"]): pod["usedGPU"] for card in _devs(node) for pod in card["pods"]}


def _given() -> dict[tuple[str, str], int]:
    """The same, as kubelet tells whoever asks its pod-resources door: an id names its card."""
    return dict(Counter((each.pod, id_.partition("::")[0]) for each in given(RESOURCE) for id_ in each.ids))


def _devs(node: Node) -> list[Json]:
    (seen,) = json.loads(node.kubectl("inspect", "cgpu", "-o", "json").stdout)["nodes"] or [{"devs": []}]
    return list(seen["devs"])
