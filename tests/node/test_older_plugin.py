"""A cluster that had gpushare's plugin before: its containers run on under our agent, restart, and are counted."""

from __future__ import annotations

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.admission import ENVIRONMENT, SCHEDULERS, before_policies
from tests.node.card_agreement import inspect_holdings, list_container_starts
from tests.node.conftest import GPU_LABEL
from tests.node.controlplane import NODE_NAME
from tests.node.gpus import read_allocatable, wait_until_offered
from tests.node.metrics import sum_metric
from tests.node.node import LiveNode, has_ready_condition
from tests.node.older_plugin import older_plugin, without_agent
from tests.node.pods import FOUNDING_APP, FOUNDING_EXAMPLE, FOUNDING_PODS, a_pod
from tests.node.second_extender import SecondExtender
from vrampack.cards import well_known

ENVIRONMENT_OF_GPUSHARE = {"NVIDIA_VISIBLE_DEVICES": "0", "ALIYUN_COM_GPU_MEM_IDX": "0", "FROM_PLUGIN": "yes"}
RECORD_OF_GPUSHARE = {
    "ALIYUN_COM_GPU_MEM_IDX": "0",
    "ALIYUN_COM_GPU_MEM_POD": "4",
    "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000000",
}
UNITS = 15
RECORD_OF_TWO = {"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "4"}


def run_founding_story(node: LiveNode) -> None:
    """S1 on a node of that plugin, which advertises only its units and cards: the extender places both pods."""
    node.kubectl("annotate", "node", NODE_NAME, f"{well_known.NODE_CARDS}-")
    patch = '{"status":{"capacity":{"aliyun.com/gpu-count":%s}}}'
    node.kubectl("patch", "node", NODE_NAME, "--subresource=status", "--type=merge", "-p", patch % '"1"')
    node.kubectl("apply", "-f", FOUNDING_EXAMPLE)
    node.wait_ready(f"app={FOUNDING_APP}")
    for name in FOUNDING_PODS:
        assert node.environment(name)["FROM_PLUGIN"] == "yes"
        assert node.get("pod", name)["metadata"]["annotations"].items() >= RECORD_OF_TWO.items()
    node.kubectl("delete", "-f", FOUNDING_EXAMPLE, "--wait")
    node.kubectl("patch", "node", NODE_NAME, "--subresource=status", "--type=merge", "-p", patch % "null")


def test_a_previous_plugins_container_keeps_running_can_restart_and_is_counted(
    node: LiveNode, cards: FakeNvmlMachine
) -> None:
    (gpu,) = cards.gpus
    older = a_pod("older", main=4)
    older["spec"]["schedulerName"] = "gpushare"  # no scheduler here has that name: the test binds it
    with without_agent(node, GPU_LABEL):
        with older_plugin([f"{gpu.uuid}-_-{unit}" for unit in range(UNITS)], ENVIRONMENT_OF_GPUSHARE):
            node.wait(lambda: read_allocatable(node) == UNITS, what="that plugin's units are offered")
            with before_policies(node, [*ENVIRONMENT, *SCHEDULERS], older):
                node.apply(older)
            SecondExtender(node).bind_with("older", RECORD_OF_GPUSHARE)
            node.wait(lambda: has_ready_condition(node.get("pod", "older")), what=lambda: node.describe(""))
            assert node.environment("older").items() >= ENVIRONMENT_OF_GPUSHARE.items()
            run_founding_story(node)
        was = list_container_starts(node, "older")
    wait_until_offered(node, cards.gpus)
    assert list_container_starts(node, "older") == was

    node.kubectl("exec", "older", "--", "kill", "1", check=False)

    def has_restarted() -> bool:
        return [each.restarts for each in list_container_starts(node, "older")] == [1]

    node.wait(has_restarted, what=lambda: node.describe(""))
    assert node.environment("older").items() >= ENVIRONMENT_OF_GPUSHARE.items()  # kubelet repeats that plugin's answer
    assert sum_metric(node, "vrampack-agent", "vrampack_agent_starts_total", result="older") == 1
    assert inspect_holdings(node) == {("older", gpu.uuid): 4}

    node.apply(a_pod("newer", main=11), a_pod("waits", main=1))
    node.wait(lambda: has_ready_condition(node.get("pod", "newer")), what=lambda: node.describe(""))
    node.wait(lambda: "FailedScheduling" in node.events("waits"), what="4 and 11 are all of 15")
