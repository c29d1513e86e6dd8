"""The product uninstalled from a node on which pods run: they run on, and everything works again when it is back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.admission import TOLD, dry_run_create
from tests.node.card_agreement import (
    assert_environment_matches,
    inspect_holdings,
    list_container_starts,
    list_kubelet_holdings,
)
from tests.node.conftest import EXACT, SHAPE
from tests.node.containerd_release import BUILT_2, DEBIAN_1_6
from tests.node.gpus import wait_until_offered
from tests.node.injected_cards import assert_cards_injected
from tests.node.node import NAMESPACE, LiveNode, has_ready_condition
from tests.node.pods import a_pod
from tests.support.manifests import MANIFESTS

pytestmark = pytest.mark.containerd(DEBIAN_1_6, BUILT_2)
REFUSED_BY_KUBELET = "device plugin PreStartContainer rpc failed"


@pytest.fixture
def removable(node: LiveNode) -> Iterator[LiveNode]:
    """Afterwards everything is installed and at work again."""
    yield node
    reinstall(node)


def uninstall(node: LiveNode) -> None:
    """The commands of the install page; the namespace and its pods are gone when they return."""
    for folder in (EXACT, SHAPE):
        node.kubectl("delete", "--ignore-not-found", "-k", MANIFESTS / folder)
    node.wait(lambda: not node.agent_pids(), what="the agent is gone")


def reinstall(node: LiveNode) -> None:
    is_exact = node.release.is_driver_everywhere
    node.install(SHAPE, *([EXACT] if is_exact else []))
    for name in ("vrampack-scheduler", "vrampack-agent"):
        node.wait_ready(f"app.kubernetes.io/name={name}", namespace=NAMESPACE, timeout_seconds=120)
    wanted = TOLD if is_exact else '"schedulerName": "vrampack"'
    node.wait(lambda: wanted in dry_run_create(node, a_pod("probe")), what="the policies change pods again")


def assert_has_its_card(node: LiveNode, cards: FakeNvmlMachine, name: str) -> None:
    (gpu,) = cards.gpus
    if node.release.is_driver_everywhere:
        assert_environment_matches(node, name)
    else:
        assert_cards_injected(node, name, {gpu.uuid: gpu.minor})


def test_running_pods_survive_an_uninstall_and_are_counted_after_a_reinstall(
    removable: LiveNode, cards: FakeNvmlMachine
) -> None:
    """No container is restarted, by the removal or by the install after it."""
    node, (gpu,) = removable, cards.gpus
    node.apply(a_pod("stays", main=4))
    node.wait(lambda: has_ready_condition(node.get("pod", "stays")), what=lambda: node.describe(""))
    was = list_container_starts(node, "stays")

    uninstall(node)
    assert list_container_starts(node, "stays") == was
    assert_has_its_card(node, cards, "stays")

    reinstall(node)
    wait_until_offered(node, cards.gpus)
    assert list_container_starts(node, "stays") == was
    assert inspect_holdings(node) == list_kubelet_holdings() == {("stays", gpu.uuid): 4}


def test_a_container_that_ends_after_an_uninstall_waits_for_an_agent(
    removable: LiveNode, cards: FakeNvmlMachine
) -> None:
    """Kubelet asks the plugin that it knew, and starts nothing; the same pod goes on when one is back."""
    node = removable
    node.apply(a_pod("ends", main=4))
    node.wait(lambda: has_ready_condition(node.get("pod", "ends")), what=lambda: node.describe(""))

    uninstall(node)
    node.kubectl("exec", "ends", "--", "kill", "1", check=False)
    node.wait(lambda: REFUSED_BY_KUBELET in node.events("ends"), what=lambda: node.events("ends"))
    assert list_container_starts(node, "ends") == []

    reinstall(node)
    node.wait(lambda: has_ready_condition(node.get("pod", "ends")), 120, what=lambda: node.describe(""))
    assert_has_its_card(node, cards, "ends")
