"""The recipe of docs/recipes/kueue.md: pods that a queue releases start with the card and the limit of their record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.api_reader import Json
from tests.node.card_agreement import assert_environment_matches, inspect_holdings, list_kubelet_holdings
from tests.node.controlplane import NODE_ADDRESS, NODE_NAME
from tests.node.node import LiveNode, has_ready_condition
from tests.support.kueue import manager
from tests.support.kueue.manager import RECIPE, KueueSite

TEAM = "team-a"
LABEL = "nvidia.com/gpu.product"


@pytest.fixture
def kueue(node: LiveNode, tmp_path: Path) -> Iterator[None]:
    """Kueue and the recipe's queues, on a node that feature discovery has called a T4."""
    account = f"system:serviceaccount:{manager.NAMESPACE}:{manager.ACCOUNT}"
    site = KueueSite(
        tmp_path / "kueue",
        node.kubectl,
        lambda: node.cluster.kubeconfig(account),
        address=NODE_ADDRESS,
        is_called_by_endpoints=True,
    )
    node.kubectl("label", "node", NODE_NAME, f"{LABEL}=Tesla-T4")
    with manager.run_manager(site):
        node.kubectl("apply", "-f", RECIPE / "queues.yaml")
        account_of_team = ("serviceaccount", "default", "-n", TEAM)
        node.wait(lambda: node.get(*account_of_team), what="the team's namespace takes pods")
        yield
    node.kubectl("label", "node", NODE_NAME, f"{LABEL}-")


@pytest.mark.usefixtures("kueue")
def test_a_pod_and_a_job_of_a_queue_share_a_card(node: LiveNode, cards: FakeNvmlMachine) -> None:
    (gpu,) = cards.gpus
    for name in ("pod", "job"):
        node.kubectl("create", "-n", TEAM, "-f", RECIPE / f"{name}.yaml")
    pods = node.wait(lambda: _running_pods(node, 3), 120, what=lambda: node.describe("", namespace=TEAM))
    for pod in pods:
        name = pod["metadata"]["name"]
        assert pod["spec"]["nodeSelector"] == {LABEL: "Tesla-T4"}
        assert_environment_matches(node, name, namespace=TEAM)
        seen = node.environment(name, namespace=TEAM)
        assert seen["NVIDIA_VISIBLE_DEVICES"] == gpu.uuid
        assert seen["NVIDIA_GPU_MEMORY_LIMIT"] == "4301"  # 16130 * 4 / 15, rounded down
    names = [pod["metadata"]["name"] for pod in pods]
    assert inspect_holdings(node) == list_kubelet_holdings() == {(name, gpu.uuid): 4 for name in names}


def _running_pods(node: LiveNode, count: int) -> list[Json]:
    pods = node.list_objects("pods", "-n", TEAM)
    return pods if len(pods) == count and all(map(has_ready_condition, pods)) else []
