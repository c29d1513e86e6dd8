"""A containerd that has CDI off would silently create containers without their cards: so none is created.

Its cluster is of Kubernetes 1.33, where no policy changes a pod: pods name the scheduler.
"""

from __future__ import annotations

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.agent_settings import read_injection, read_unready_reason, set_injection, wait_for_injection
from tests.node.containerd_release import BUILT_1_7
from tests.node.controlplane import NODE_NAME
from tests.node.gpus import read_allocatable
from tests.node.injected_cards import assert_cards_injected
from tests.node.node import LiveNode
from tests.node.pods import FOUNDING_APP, FOUNDING_PODS
from tests.support.manifests import MANIFESTS

pytestmark = pytest.mark.containerd(BUILT_1_7)

ADVICE = "containerd 1.7 does not read specs: set enable_cdi = true in the section of its CRI plugin, and restart it"


def test_the_agent_names_the_option_to_enable_and_offers_cards_once_it_is(
    node: LiveNode, cards: FakeNvmlMachine
) -> None:
    """By itself it takes `exact`, where nothing of CDI is needed. Told to take `cdi` it offers nothing."""
    node.wait(lambda: read_injection(node) == "exact", what=lambda: read_injection(node))
    told = f"GPUMemoryInjection: containers get their cards by exact: {ADVICE}"
    node.wait(lambda: told in node.events(NODE_NAME), what=lambda: node.events(NODE_NAME))

    set_injection(node, "cdi")
    refusal = f"injection: cdi: {ADVICE}"
    node.wait(lambda: refusal in read_unready_reason(node), what=lambda: read_unready_reason(node))
    node.wait(lambda: read_allocatable(node) == 0, what="no unit is offered")
    node.wait(lambda: refusal in node.events(NODE_NAME), what=lambda: node.events(NODE_NAME))

    node.containerd.switch_cdi_on()
    node.restart_containerd()
    node.kill_agent()  # by itself it looks again within a minute
    wait_for_injection(node, "cdi")
    node.kubectl("apply", "-k", MANIFESTS / "before-1.36" / "examples")
    node.wait_ready(f"app={FOUNDING_APP}")
    (gpu,) = cards.gpus
    for name in FOUNDING_PODS:
        assert_cards_injected(node, name, {gpu.uuid: gpu.minor})
