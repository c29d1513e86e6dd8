"""Two extenders gave away the same room: on the node one pod starts, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import V100_16130_MIB, StubGpu, stub_gpus
from tests.node.agent_settings import AGENT, set_agent_settings
from tests.node.api_reader import Json
from tests.node.card_agreement import (
    assert_environment_matches,
    inspect_holdings,
    list_container_starts,
    list_kubelet_holdings,
)
from tests.node.gpus import wait_until_offered, with_gpus
from tests.node.node import NAMESPACE, LiveNode, has_ready_condition
from tests.node.pods import a_pod, a_replica_set, annotated
from tests.node.second_extender import SecondExtender, without_scheduler

REFUSED_SECONDS = 5
"""Of refusals before an eviction; the agent has 30 as it ships."""


@pytest.fixture(scope="module")
def pair(node: LiveNode, cards: FakeNvmlMachine) -> Iterator[tuple[StubGpu, ...]]:
    """Two cards of 15 units: kubelet counts 30, so the fence alone sees that one card is full. Evictions come soon."""
    set_agent_settings(node, refused={"after_seconds": REFUSED_SECONDS})
    with with_gpus(node, cards, stub_gpus("Tesla V100-SXM2-16GB", V100_16130_MIB, 2)) as held_now:
        yield held_now
    set_agent_settings(node)
    wait_until_offered(node, cards.gpus)
    node.wait_ready(AGENT, namespace=NAMESPACE)


def names(node: LiveNode, label: str) -> list[str]:
    """Of the pods that live."""
    pods = node.list_objects("pods", "-l", f"name={label}")
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def refused(node: LiveNode, name: str) -> str:
    """What its container waits for; empty as long as it does not."""
    pod = node.get("pod", name) or {"status": {}}
    for status in pod["status"].get("containerStatuses", []):
        waiting: Json = status["state"].get("waiting", {})
        if waiting.get("reason") == "CreateContainerConfigError":
            return str(waiting["message"])
    return ""


def overcommitted(gpu: StubGpu) -> str:
    return f"card {gpu.uuid} has 15 units, running pods hold 8, and this pod was given 8: it was bound past the ledger"


def test_one_of_two_starts_the_other_is_evicted_and_its_successor_finds_a_card(
    node: LiveNode, pair: tuple[StubGpu, ...]
) -> None:
    full, empty = pair
    with without_scheduler(node):
        node.apply(a_replica_set("rivals", 2, main=8))
        node.wait(lambda: len(names(node, "rivals")) == 2, what="both are made")
        second, rivals = SecondExtender(node), names(node, "rivals")
        for name in rivals:
            second.bind(name, full.uuid)

        loser = node.wait(
            lambda: next((name for name in rivals if refused(node, name)), ""), what=lambda: node.describe("")
        )
        (winner,) = {*rivals} - {loser}
        node.wait(lambda: has_ready_condition(node.get("pod", winner)), what=lambda: node.describe(""))
        assert overcommitted(full) in refused(node, loser)
        assert list_container_starts(node, loser) == []
        told = f"GPUMemoryStartRefused: container main: {overcommitted(full)}"
        node.wait(lambda: told in node.events(loser), what=lambda: node.events(loser))

        node.wait(lambda: loser not in names(node, "rivals"), what="it leaves")
        node.wait(lambda: "GPUMemoryEvicted: may not start" in node.events(loser), what=lambda: node.events(loser))
        (successor,) = node.wait(lambda: {*names(node, "rivals")} - {winner}, what="another one is made")
        assert "nodeName" not in node.get("pod", successor)["spec"]

    node.wait(lambda: has_ready_condition(node.get("pod", successor)), what=lambda: node.describe("name=rivals"))
    assert_environment_matches(node, winner)
    assert_environment_matches(node, successor)
    assert inspect_holdings(node) == {(winner, full.uuid): 8, (successor, empty.uuid): 8}
    assert sum(units for (name, _), units in list_kubelet_holdings().items() if name == successor) == 8


def test_a_bare_pod_in_that_place_is_kept_and_told(node: LiveNode, pair: tuple[StubGpu, ...]) -> None:
    """Nobody would make it again. It waits for longer than another one that is evicted, and starts when there is room."""
    full, _ = pair
    with without_scheduler(node):
        node.apply(a_replica_set("owned", 1, main=8), a_pod("bare", main=8), a_replica_set("late", 1, main=8))
        second = SecondExtender(node)
        (owned,) = node.wait(lambda: names(node, "owned"), what="it is made")
        (late,) = node.wait(lambda: names(node, "late"), what="it is made")
        second.bind(owned, full.uuid)
        node.wait(lambda: has_ready_condition(node.get("pod", owned)), what=lambda: node.describe("name=owned"))
        for name in ("bare", late):
            second.bind(name, full.uuid)
            node.wait(partial(refused, node, name), what=partial(node.describe, ""))

        node.wait(lambda: late not in names(node, "late"), what="the later one leaves")
        bare = node.get("pod", "bare")
        assert "deletionTimestamp" not in bare["metadata"]
        assert overcommitted(full) in node.events("bare")
        assert overcommitted(full) in refused(node, "bare")

        node.kubectl("delete", "replicaset", "owned", "--cascade=foreground")
        node.wait(lambda: has_ready_condition(node.get("pod", "bare")), what=lambda: node.describe(""))
        assert node.environment("bare")["NVIDIA_VISIBLE_DEVICES"] == full.uuid
        assert annotated(bare, "main")["NVIDIA_VISIBLE_DEVICES"] == full.uuid
