"""The recipe of docs/recipes/jupyterhub.md: users get slices of one card, and an idle server makes room for a user who waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.api_reader import Json
from tests.node.card_agreement import assert_environment_matches, inspect_holdings, list_container_starts
from tests.node.images import BUSYBOX_NAME
from tests.node.node import LiveNode
from tests.support.jupyterhub.hub import HubSite, LiveHub, run_hub
from tests.support.jupyterhub.programs import install_programs

ALICE, BOB, CAROL = "alice", "bob", "carol"
A_WEB_SERVER = ["-c", "exec httpd -f -p 8888"]
"""KubeSpawner gives it to the image's own entry point, which is a shell."""
NODE_LIMIT_MIB = 16130
"""Of the card; 15 units."""


@pytest.fixture
def hub(node: LiveNode, tmp_path: Path) -> Iterator[LiveHub]:
    site = HubSite(tmp_path / "hub", install_programs(), node.cluster.admin, BUSYBOX_NAME, A_WEB_SERVER)
    with run_hub(site) as running:
        running.add_users(ALICE, BOB, CAROL)
        yield running


def test_a_culled_server_makes_room_for_the_one_that_waits(
    node: LiveNode, cards: FakeNvmlMachine, hub: LiveHub
) -> None:
    (gpu,) = cards.gpus
    hub.start_server(ALICE, profile="gpu-8")
    hub.start_server(BOB, profile="gpu-4")
    node.wait(lambda: hub.has_ready_server(ALICE) and hub.has_ready_server(BOB), 120, what=hub.process.log_tail)
    names = {user: _pod_of(node, user)["metadata"]["name"] for user in (ALICE, BOB)}
    for user, units in ((ALICE, 8), (BOB, 4)):
        assert_environment_matches(node, names[user])
        seen = node.environment(names[user])
        assert seen["NVIDIA_VISIBLE_DEVICES"] == gpu.uuid
        assert seen["NVIDIA_GPU_MEMORY_LIMIT"] == str(NODE_LIMIT_MIB * units // 15)
    assert inspect_holdings(node) == {(names[ALICE], gpu.uuid): 8, (names[BOB], gpu.uuid): 4}

    hub.start_server(CAROL, profile="gpu-4")
    waiting = node.wait(lambda: _waiting_pod(node, CAROL), what="the third pod waits: 3 units are free")
    bobs = list_container_starts(node, names[BOB])
    hub.report_activity(BOB)
    with hub.idle_culler(timeout_seconds=1, every_seconds=1):
        node.wait(lambda: _is_ending(node, ALICE), what=lambda: f"the idle server goes\n{node.describe('')}")
    node.wait(lambda: hub.has_ready_server(CAROL), 120, what=hub.process.log_tail)

    assert _pod_of(node, CAROL)["metadata"]["uid"] == waiting["metadata"]["uid"]
    name = _pod_of(node, CAROL)["metadata"]["name"]
    assert_environment_matches(node, name)
    assert inspect_holdings(node) == {(name, gpu.uuid): 4, (names[BOB], gpu.uuid): 4}
    assert list_container_starts(node, names[BOB]) == bobs


def test_a_server_without_gpu_memory_gets_no_card_and_the_default_scheduler(node: LiveNode, hub: LiveHub) -> None:
    hub.start_server(ALICE, profile="no-gpu")
    node.wait(lambda: hub.has_ready_server(ALICE), 120, what=hub.process.log_tail)
    pod = _pod_of(node, ALICE)
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert "NVIDIA_VISIBLE_DEVICES" not in node.environment(pod["metadata"]["name"])


def _pod_of(node: LiveNode, user: str) -> Json:
    (pod,) = _pods_of(node, user)
    return pod


def _pods_of(node: LiveNode, user: str) -> list[Json]:
    return node.list_objects("pods", "-n", "default", "-l", f"hub.jupyter.org/username={user}")


def _waiting_pod(node: LiveNode, user: str) -> Json:
    """The pod, once the scheduler has found no room for it."""
    for pod in _pods_of(node, user):
        for condition in pod["status"].get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return pod
    return None


def _is_ending(node: LiveNode, user: str) -> bool:
    return all("deletionTimestamp" in pod["metadata"] for pod in _pods_of(node, user))
