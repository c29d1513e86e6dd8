"""Cards by CDI on a node as NVIDIA's operator sets it up: no setting of ours, no admission of environments, no runtime class."""

from __future__ import annotations

import json

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.card_agreement import inspect_holdings, list_kubelet_holdings, read_published_cards
from tests.node.containerd_release import BUILT_2
from tests.node.controlplane import NODE_NAME
from tests.node.injected_cards import (
    assert_cards_injected,
    list_answers,
    list_card_nodes,
    list_device_rules,
    list_own_specs,
)
from tests.node.metrics import sum_metric
from tests.node.node import LiveNode, has_ready_condition
from tests.node.nvidia_spec import CONTROL_MINORS, MAJOR
from tests.node.pods import FOUNDING_APP, FOUNDING_EXAMPLE, FOUNDING_PODS, a_pod
from vrampack.cards import well_known

pytestmark = pytest.mark.containerd(BUILT_2)


def test_the_agent_chooses_cdi_and_publishes_it(node: LiveNode) -> None:
    node.wait(lambda: read_published_cards(node), what="the node's card is published")
    metadata = node.get("node", NODE_NAME)["metadata"]
    assert metadata["labels"][well_known.INJECTION] == "cdi"
    assert json.loads(metadata["annotations"][well_known.NODE_CARDS])["injection"] == "cdi"
    assert sum_metric(node, "vrampack-agent", "vrampack_agent_injection_info", mode="cdi") == 1
    told = "GPUMemoryInjection: containers get their cards by cdi: containerd 2.3 reads specs"
    node.wait(lambda: told in node.events(NODE_NAME), what=lambda: node.events(NODE_NAME))


def test_two_pods_share_one_card_and_see_no_other(node: LiveNode, cards: FakeNvmlMachine) -> None:
    """The founding story, unedited: the card and the limit of each come by its own spec, which is gone afterwards."""
    (gpu,) = cards.gpus
    node.wait(lambda: read_published_cards(node), what="the node's card is published")
    node.kubectl("apply", "-f", FOUNDING_EXAMPLE)
    node.apply(a_pod("plain", main=0))
    node.wait_ready(f"app={FOUNDING_APP}")
    node.wait(lambda: has_ready_condition(node.get("pod", "plain")), what=lambda: node.describe(""))

    for name in FOUNDING_PODS:
        assert_cards_injected(node, name, {gpu.uuid: gpu.minor})
        assert list_device_rules(node, name, MAJOR) == dict.fromkeys(
            (gpu.minor, CONTROL_MINORS["/dev/nvidiactl"]), "rw"
        )
        assert node.environment(name)["NVIDIA_GPU_MEMORY_LIMIT"] == "4301"  # 16130 * 4 / 15, rounded down
        (answer,) = list_answers(node, name).values()
        assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": "void"}
        assert [each.name.partition("=")[0] for each in answer.cdi_devices] == ["vrampack.dev/card"]
        assert not answer.mounts
        assert not answer.devices
    assert list_card_nodes(node, "plain") == set()
    assert list_device_rules(node, "plain", MAJOR) == {}

    assert inspect_holdings(node) == list_kubelet_holdings() == {(name, gpu.uuid): 4 for name in FOUNDING_PODS}
    assert "8/15 (53%)" in node.kubectl("inspect", "cgpu").stdout
    node.wait(lambda: not list_own_specs(), what=lambda: f"{list_own_specs()} are needed no more")
