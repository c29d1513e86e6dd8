"""The founding story on a whole node: two pods of 4 units on one card of 15, and all sources agree."""

from __future__ import annotations

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.card_agreement import (
    assert_environment_matches,
    inspect_holdings,
    list_kubelet_holdings,
    read_published_cards,
)
from tests.node.node import LiveNode
from tests.node.pods import FOUNDING_APP, FOUNDING_EXAMPLE, FOUNDING_PODS


def test_two_pods_share_one_card_and_free_it_when_deleted(node: LiveNode, cards: FakeNvmlMachine) -> None:
    (gpu,) = cards.gpus
    node.wait(lambda: read_published_cards(node), what="the node's card is published")
    node.kubectl("apply", "-f", FOUNDING_EXAMPLE)
    node.wait_ready(f"app={FOUNDING_APP}")

    for name in FOUNDING_PODS:
        pod, seen = node.get("pod", name), node.environment(name)
        assert pod["spec"]["schedulerName"] == "vrampack"
        assert_environment_matches(node, name)
        assert seen["NVIDIA_VISIBLE_DEVICES"] == gpu.uuid
        assert seen["ALIYUN_COM_GPU_MEM_CONTAINER"] == "4"
        assert seen["ALIYUN_COM_GPU_MEM_DEV"] == "15"
        assert seen["NVIDIA_GPU_MEMORY_LIMIT"] == "4301"  # 16130 * 4 / 15, rounded down

    assert inspect_holdings(node) == list_kubelet_holdings() == {(name, gpu.uuid): 4 for name in FOUNDING_PODS}
    table = node.kubectl("inspect", "cgpu").stdout
    assert "8/15 (53%)" in table

    node.kubectl("delete", "-f", FOUNDING_EXAMPLE, "--wait")
    node.wait(lambda: not node.list_objects("pods"), what="the app is gone")
    node.wait(lambda: not list_kubelet_holdings(), what="kubelet has given nothing away")
    assert inspect_holdings(node) == {}
    assert "0/15 (0%)" in node.kubectl("inspect", "cgpu").stdout
