"""Whatever dies on the node comes back, running pods are not disturbed, and the next one starts as usual."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.card_agreement import (
    assert_environment_matches,
    inspect_holdings,
    list_container_starts,
    list_kubelet_holdings,
)
from tests.node.containerd_release import BUILT_2, DEBIAN_1_6
from tests.node.controlplane import NODE_NAME
from tests.node.injected_cards import assert_cards_injected
from tests.node.node import NAMESPACE, LiveNode
from tests.node.podresources import list_pod_resources
from tests.node.pods import RESOURCE, a_set


def start(node: LiveNode, name: str, **units: int) -> None:
    """A pod that runs."""
    node.apply(a_set(name, **(units or {"main": 4})))
    node.wait_ready(f"name={name}", timeout_seconds=90)


def wait_until_consistent(node: LiveNode, cards: FakeNvmlMachine, names: dict[str, int]) -> None:
    """All sources report these pods, by units, and no other."""
    (gpu,) = cards.gpus
    wanted = {(name, gpu.uuid): units for name, units in names.items()}
    node.wait(
        lambda: inspect_holdings(node) == list_kubelet_holdings() == wanted,
        what=lambda: f"{inspect_holdings(node)} {list_kubelet_holdings()} {wanted}",
    )
    for name in names:
        if node.release.is_driver_everywhere:
            assert_environment_matches(node, name)
        else:
            assert_cards_injected(node, name, {gpu.uuid: gpu.minor})


def offers(node: LiveNode) -> bool:
    """Kubelet counts the units again; meanwhile it says 0."""
    return bool(node.get("node", NODE_NAME)["status"]["allocatable"].get(RESOURCE) == "15")


FAULTS: dict[str, Callable[[LiveNode], object]] = {
    "kubelet is killed": LiveNode.restart_kubelet,
    "containerd is killed": LiveNode.restart_containerd,
    "the agent is killed": LiveNode.kill_agent,
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_running_pods_are_undisturbed_and_new_ones_start(
    node: LiveNode, cards: FakeNvmlMachine, fault: Callable[[LiveNode], object]
) -> None:
    """A pod that kubelet gets before it knows the plugin again fails for good; its controller makes another."""
    start(node, "before")
    was = list_container_starts(node, "before-0")

    fault(node)

    start(node, "after")
    assert list_container_starts(node, "before-0") == was
    node.wait(lambda: offers(node), what="all units are offered")
    wait_until_consistent(node, cards, {"before-0": 4, "after-0": 4})


def test_an_agent_that_dies_during_allocate_costs_one_pod(node: LiveNode, cards: FakeNvmlMachine) -> None:
    """Kubelet fails that pod; what it held is free again, and its successor runs."""
    with node.stopped_agent():
        node.apply(a_set("caught", main=4))
        node.wait(lambda: (node.get("pod", "caught-0") or {"spec": {}})["spec"].get("nodeName"), what="it is bound")
        node.kill_agent()
    node.wait_ready("name=caught", timeout_seconds=90)
    wait_until_consistent(node, cards, {"caught-0": 4})


def test_an_agent_that_dies_between_allocate_and_the_start_is_asked_again(
    node: LiveNode, cards: FakeNvmlMachine
) -> None:
    node.apply(a_set("caught", main=4))
    node.wait(
        lambda: any(each.pod == "caught-0" for each in list_pod_resources(RESOURCE)), what="its devices are given"
    )
    node.kill_agent()
    node.wait_ready("name=caught", timeout_seconds=90)
    wait_until_consistent(node, cards, {"caught-0": 4})


@pytest.mark.containerd(DEBIAN_1_6, BUILT_2)
def test_after_a_reboot_everything_runs_again(node: LiveNode, cards: FakeNvmlMachine) -> None:
    """Kubelet keeps its checkpoint, all sockets are gone. It fails a pod that it meets before its plugin: a new one comes."""
    start(node, "before", one=4, two=2)
    was = {each.id for each in list_container_starts(node, "before-0")}

    node.reboot()

    def has_started_again() -> bool:
        now = {each.id for each in list_container_starts(node, "before-0")}
        return len(now) == len(was) and was.isdisjoint(now)

    node.wait(has_started_again, 120, what=lambda: node.describe("name=before"))
    for name in ("vrampack-scheduler", "vrampack-agent"):
        node.wait_ready(f"app.kubernetes.io/name={name}", namespace=NAMESPACE, timeout_seconds=120)
    start(node, "after")
    wait_until_consistent(node, cards, {"before-0": 6, "after-0": 4})
