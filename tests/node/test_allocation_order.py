"""Pods of one size that arrive at once: `Allocate` cannot tell them apart, and still no pod gets another one's card."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import PROFILES
from tests.node.card_agreement import assert_environment_matches, inspect_holdings, list_kubelet_holdings
from tests.node.gpus import with_gpus
from tests.node.metrics import sum_metric
from tests.node.node import LiveNode, has_ready_condition
from tests.node.pods import a_replica_set

PODS = 20
"""Of 4 units each on 8 cards of 15: three fit on a card, so 24 places."""
MISMATCHES = "vrampack_agent_id_card_mismatch_total"


@pytest.fixture
def eight(node: LiveNode, cards: FakeNvmlMachine) -> Iterator[None]:
    with with_gpus(node, cards, PROFILES["v100x8"]):
        yield


@pytest.mark.usefixtures("eight")
def test_twenty_pods_at_once_each_see_the_card_of_their_annotation(node: LiveNode) -> None:
    """Where kubelet counts a pod on another card than it has, the environment is right and the agent counts it."""
    before = sum_metric(node, "vrampack-agent", MISMATCHES)
    node.apply(a_replica_set("crowd", PODS, main=4))

    def all_run() -> bool:
        pods = node.list_objects("pods", "-l", "name=crowd")
        return len(pods) == PODS and all(has_ready_condition(pod) for pod in pods)

    node.wait(all_run, 180, what=lambda: node.kubectl("get", "pods", "-o", "wide").stdout)
    for pod in node.list_objects("pods", "-l", "name=crowd"):
        assert_environment_matches(node, pod["metadata"]["name"])

    recorded, counted_on = inspect_holdings(node), list_kubelet_holdings()
    assert sorted(recorded.values()) == [4] * PODS
    elsewhere = {name for (name, card), units in recorded.items() if counted_on.get((name, card)) != units}
    assert sum_metric(node, "vrampack-agent", MISMATCHES) - before == len(elsewhere)
    assert sum(counted_on.values()) == 4 * PODS
    by_card: dict[str, int] = {}
    for (_, card), units in recorded.items():
        by_card[card] = by_card.get(card, 0) + units
    assert max(by_card.values()) <= 15
