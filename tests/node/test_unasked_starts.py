"""kubelet's gap: between its own restart and the plugin's next registration it starts containers without asking.

A container whose environment names its card starts then, past the fence. One whose card comes by CDI does not: its
spec is not written. The agent is held back meanwhile, so that the moment lasts.
"""

from __future__ import annotations

from signal import SIGKILL

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.card_agreement import list_container_starts
from tests.node.containerd_release import BUILT_2, DEBIAN_1_6
from tests.node.gpus import wait_until_offered
from tests.node.injected_cards import list_card_nodes, list_own_specs
from tests.node.metrics import sum_metric
from tests.node.node import LiveNode, has_ready_condition
from tests.node.pods import a_pod

ASKED = "vrampack_agent_starts_total"
KILLED = 128 + SIGKILL


def start(node: LiveNode) -> None:
    node.apply(a_pod("restarts", main=4))
    node.wait(lambda: has_ready_condition(node.get("pod", "restarts")), what=lambda: node.describe(""))


def end_container(node: LiveNode) -> None:
    """As soon as kubelet, which has just started, knows its pod again. `kill` may itself be killed with the container."""
    node.wait(
        lambda: node.kubectl("exec", "restarts", "--", "kill", "1", check=False).returncode in {0, KILLED},
        what="it is told",
    )


def has_restarted(node: LiveNode) -> bool:
    return [each.restarts for each in list_container_starts(node, "restarts")] == [1]


@pytest.mark.containerd(DEBIAN_1_6)
def test_with_exact_injection_a_container_can_start_without_prestart(node: LiveNode, cards: FakeNvmlMachine) -> None:
    start(node)
    asked = sum_metric(node, "vrampack-agent", ASKED)
    with node.stopped_agent():
        node.restart_kubelet()
        end_container(node)
        node.wait(lambda: has_restarted(node), what=lambda: node.describe(""))
    wait_until_offered(node, cards.gpus)
    assert sum_metric(node, "vrampack-agent", ASKED) == asked


@pytest.mark.containerd(BUILT_2)
def test_with_cdi_injection_a_container_waits_for_prestart(node: LiveNode) -> None:
    start(node)
    node.wait(lambda: not list_own_specs(), what="its spec is gone")
    asked = sum_metric(node, "vrampack-agent", ASKED, result="ok")
    with node.stopped_agent():
        node.restart_kubelet()
        end_container(node)
        refusal = "unresolvable CDI devices vrampack.dev/card="
        node.wait(lambda: refusal in node.events("restarts"), what=lambda: node.describe(""))
        assert list_container_starts(node, "restarts") == []
    node.wait(lambda: has_restarted(node), what=lambda: node.describe(""))
    assert sum_metric(node, "vrampack-agent", ASKED, result="ok") > asked
    assert list_card_nodes(node, "restarts") == {"nvidia0"}
