"""Pods of one size that come all at once: `Allocate` cannot tell them apart, and nobody is given another one's card."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.nvml.machine import Machine
from tests.fakes.nvml.profiles import PROFILES
from tests.node.agreement import environment_is_annotation, given_away, held
from tests.node.gpus import holding
from tests.node.metrics import counted
from tests.node.node import Node, is_ready
from tests.node.pods import a_replica_set

PODS = 20
"""Of 4 units each on 8 cards of 15: three fit on a card, so 24 places."""
MISMATCHES = "vrampack_agent_id_card_mismatch_total"


@pytest.fixture
def eight(node: Node, cards: Machine) -> Iterator[None]:
    with holding(node, cards, PROFILES["v100x8"]):
        yield


@pytest.mark.usefixtures("eight")
def test_twenty_pods_at_once_each_see_the_card_of_their_annotation(node: Node) -> None:
    """Where kubelet counts a pod on another card than it has, the environment is right and the agent counts it."""
    before = counted(node, "vrampack-agent", MISMATCHES)
    node.apply(a_replica_set("crowd", PODS, main=4))

    def all_run() -> bool:
        pods = node.all("pods", "-l", "name=crowd")
        return len(pods) == PODS and all(is_ready(pod) for pod in pods)

    node.wait(all_run, 180, what=lambda: node.kubectl("get", "pods", "-o", "wide").stdout)
    for pod in node.all("pods", "-l", "name=crowd"):
        environment_is_annotation(node, pod["metadata"]["name"])

    recorded, counted_on = held(node), given_away()
    assert sorted(recorded.values()) == [4] * PODS
    elsewhere = {name for (name, card), units in recorded.items() if counted_on.get((name, card)) != units}
    assert counted(node, "vrampack-agent", MISMATCHES) - before == len(elsewhere)
    assert sum(counted_on.values()) == 4 * PODS
    by_card: dict[str, int] = {}
    for (_, card), units in recorded.items():
        by_card[card] = by_card.get(card, 0) + units
    assert max(by_card.values()) <= 15
