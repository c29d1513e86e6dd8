"""Two extenders allocated the same memory: on the node one pod starts, and no pod waits for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import V100_16130_MIB, StubGpu, stub_gpus
from tests.node.agent_settings import AGENT
from tests.node.api_reader import Json
from tests.node.card_agreement import (
    assert_environment_matches,
    inspect_holdings,
    list_container_starts,
    list_kubelet_holdings,
)
from tests.node.controlplane import NODE_NAME
from tests.node.gpus import wait_until_offered, with_gpus
from tests.node.metrics import sum_metric
from tests.node.node import NAMESPACE, LiveNode, has_ready_condition
from tests.node.pods import a_pod, a_replica_set, annotated
from tests.node.second_extender import SecondExtender, without_scheduler
from vrampack.cards import well_known
from vrampack.cards.refused_pods import read_refused

EVICTED_AFTER_SECONDS = 3
"""As the extender has it here; 30 as it ships."""


@pytest.fixture(scope="module")
def pair(node: LiveNode, cards: FakeNvmlMachine) -> Iterator[tuple[StubGpu, ...]]:
    """Two cards of 15 units: kubelet counts 30, so the fence alone sees that one card is full. Evictions come soon."""
    with evicting_soon(node), with_gpus(node, cards, stub_gpus("Tesla V100-SXM2-16GB", V100_16130_MIB, 2)) as held_now:
        yield held_now
    wait_until_offered(node, cards.gpus)
    node.wait_ready(AGENT, namespace=NAMESPACE)


@contextmanager
def evicting_soon(node: LiveNode) -> Iterator[None]:
    """In force for extenders that start from now on: each test here has them stopped for a while."""
    volumes = node.get("deployment", "vrampack-scheduler", "-n", NAMESPACE)["spec"]["template"]["spec"]["volumes"]
    (name,) = (found for each in volumes if "extender" in (found := each.get("configMap", {}).get("name", "")))
    shipped = node.get("configmap", name, "-n", NAMESPACE)["data"]["extender.yaml"]

    def write(text: str) -> None:
        patch = json.dumps({"data": {"extender.yaml": text}})
        node.kubectl("patch", "configmap", name, "-n", NAMESPACE, "--type=merge", "-p", patch)

    write(f"{shipped}\nrefused: {{evict_after_seconds: {EVICTED_AFTER_SECONDS}}}\n")
    try:
        yield
    finally:
        write(shipped)


def have_extender_called(node: LiveNode) -> None:
    """An extender that no scheduler has called leaves evictions to another one for a minute."""
    node.apply(a_pod("caller", main=1))
    node.wait(lambda: "nodeName" in node.get("pod", "caller")["spec"], what="it is bound")
    node.kubectl("delete", "pod", "caller", "--now")


def names(node: LiveNode, label: str) -> list[str]:
    """Of the pods that exist."""
    pods = node.list_objects("pods", "-l", f"name={label}")
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def refused(node: LiveNode, name: str) -> str:
    """What its container waits for; empty if it does not wait."""
    pod = node.get("pod", name) or {"status": {}}
    for status in pod["status"].get("containerStatuses", []):
        waiting: Json = status["state"].get("waiting", {})
        if waiting.get("reason") == "CreateContainerConfigError":
            return str(waiting["message"])
    return ""


def read_refused_pods(node: LiveNode) -> dict[str, str]:
    """Reasons by uid, as the Node has them."""
    text = node.get("node", NODE_NAME)["metadata"]["annotations"].get(well_known.NODE_REFUSED)
    return {} if text is None else read_refused(text)[0]


def overcommitted(gpu: StubGpu) -> str:
    return f"card {gpu.uuid} has 15 units, running pods hold 8, and this pod was given 8: it was bound without the extender's ledger"


def test_of_two_oversold_pods_one_starts_and_the_other_is_replaced_elsewhere(
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

        uid = node.get("pod", loser)["metadata"]["uid"]
        node.wait(lambda: uid in read_refused_pods(node), what="its Node names it")
        assert loser in names(node, "rivals")

    have_extender_called(node)
    node.wait(lambda: loser not in names(node, "rivals"), what="it leaves")
    text = f"GPUMemoryEvicted: refused on node {NODE_NAME} (overcommitted)"
    node.wait(lambda: text in node.events(loser), what=lambda: node.events(loser))
    (successor,) = node.wait(lambda: {*names(node, "rivals")} - {winner}, what="another one is made")
    node.wait(lambda: has_ready_condition(node.get("pod", successor)), what=lambda: node.describe("name=rivals"))
    assert_environment_matches(node, winner)
    assert_environment_matches(node, successor)
    assert inspect_holdings(node) == {(winner, full.uuid): 8, (successor, empty.uuid): 8}
    assert sum_metric(node, "vrampack-agent", "vrampack_agent_read_identity_info", identity="node") == 1
    assert sum(units for (name, _), units in list_kubelet_holdings().items() if name == successor) == 8


def test_an_oversold_bare_pod_is_kept_and_gets_an_event(node: LiveNode, pair: tuple[StubGpu, ...]) -> None:
    """No controller would recreate it. It waits for longer than another one that is evicted, and starts when there is room."""
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

    have_extender_called(node)
    node.wait(lambda: late not in names(node, "late"), what="the later one leaves")
    node.wait(lambda: "GPUMemoryNotEvicted" in node.events("bare"), what=lambda: node.events("bare"))
    bare = node.get("pod", "bare")
    assert "deletionTimestamp" not in bare["metadata"]
    assert overcommitted(full) in node.events("bare")
    assert overcommitted(full) in refused(node, "bare")

    node.kubectl("delete", "replicaset", "owned", "--cascade=foreground")
    node.wait(lambda: has_ready_condition(node.get("pod", "bare")), what=lambda: node.describe(""))
    assert node.environment("bare")["NVIDIA_VISIBLE_DEVICES"] == full.uuid
    assert annotated(bare, "main")["NVIDIA_VISIBLE_DEVICES"] == full.uuid
    node.wait(lambda: read_refused_pods(node) == {}, what="its Node names it no longer")
