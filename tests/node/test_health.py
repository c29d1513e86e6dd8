"""One of two cards is sick, or kept out of use: the other goes on, and a waiting pod is bound when it is back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.fakes.nvml.machine import FakeCondition, FakeNvmlMachine
from tests.fakes.nvml.profiles import V100_16130_MIB, StubGpu, stub_gpus
from tests.node.card_agreement import inspect_holdings, list_container_starts, read_published_cards
from tests.node.controlplane import NODE_NAME
from tests.node.gpus import read_allocatable, read_annotated_cards, read_card_health, with_gpus
from tests.node.metrics import sum_metric
from tests.node.node import NAMESPACE, LiveNode, has_ready_condition
from tests.node.pods import a_pod, annotated
from vrampack.cards.well_known import CARDS_CONDITION

UNCORRECTABLE_DRAM = 171
"""Accompanies XID 48, and requires no repair by itself: the card is back after clean checks."""


@pytest.fixture(scope="module")
def pair(node: LiveNode, cards: FakeNvmlMachine) -> Iterator[tuple[StubGpu, ...]]:
    """Two cards of 15 units."""
    with with_gpus(node, cards, v100s(2)) as two:
        yield two


def v100s(count: int) -> tuple[StubGpu, ...]:
    return stub_gpus("Tesla V100-SXM2-16GB", V100_16130_MIB, count)


def start(node: LiveNode, name: str, units: int) -> str:
    """A pod that runs; the card that it sees."""
    node.apply(a_pod(name, main=units))
    node.wait(lambda: has_ready_condition(node.get("pod", name)), what=lambda: node.describe(""))
    return annotated(node.get("pod", name), "main")["NVIDIA_VISIBLE_DEVICES"]


def test_a_card_with_an_error_gets_no_pods_until_it_is_clean(
    node: LiveNode, cards: FakeNvmlMachine, pair: tuple[StubGpu, ...]
) -> None:
    """What runs on it is not disturbed, and the fuller card is no longer the better one."""
    sick = start(node, "before", 4)
    (other,) = {gpu.uuid for gpu in pair} - {sick}
    was = list_container_starts(node, "before")

    cards.fail("nvmlDeviceGetMemoryInfo", 999, sick)
    cards.xid(sick, UNCORRECTABLE_DRAM)
    node.wait(lambda: read_card_health(node) == {sick: False, other: True}, what="its annotation says so")
    node.wait(lambda: read_allocatable(node) == 15, what=lambda: f"{read_allocatable(node)} units are left")
    told = f"GPUMemoryCardUnhealthy: card {sick} unhealthy: XID {UNCORRECTABLE_DRAM}"
    node.wait(lambda: told in node.events(NODE_NAME), what=lambda: node.events(NODE_NAME))
    assert start(node, "after", 4) == other
    assert list_container_starts(node, "before") == was

    cards.heal()
    node.wait(lambda: read_card_health(node) == {sick: True, other: True}, what="it has recovered")
    node.wait(lambda: read_allocatable(node) == 30, what=lambda: f"{read_allocatable(node)} units are left")
    told_again = f"GPUMemoryCardRecovered: card {sick}"
    node.wait(lambda: told_again in node.events(NODE_NAME), what=lambda: node.events(NODE_NAME))
    assert list_container_starts(node, "before") == was
    assert sum_metric(node, "vrampack-agent", "vrampack_agent_xid_errors_total", UUID=sick, xid="171") == 1


RESTARTS: dict[str, Callable[[LiveNode], object]] = {
    "the agent": LiveNode.kill_agent,
    "kubelet": LiveNode.restart_kubelet,
    "the node": LiveNode.reboot,
}


def test_a_card_with_a_pending_remap_stays_unavailable_across_restarts(
    node: LiveNode, cards: FakeNvmlMachine, pair: tuple[StubGpu, ...]
) -> None:
    """NVML reports it once and then nothing: the node's annotation keeps the card out, until NVML reports again."""
    sick = start(node, "before", 4)
    (other,) = {gpu.uuid for gpu in pair} - {sick}
    cards.set_condition(sick, FakeCondition(remap_pending=1, remap_failed=0))
    node.wait(lambda: read_card_health(node) == {sick: False, other: True}, what="its annotation says so")
    told = (
        f"GPUMemoryOnUnhealthyCard: card {sick} of this pod is unhealthy: a row of its memory is waiting to be remapped"
    )
    node.wait(lambda: told in node.events("before"), what=lambda: node.events("before"))
    node.wait(lambda: read_cards_condition(node) == "False CardUnhealthy", what=lambda: read_cards_condition(node))
    verdict = read_verdicts(node)
    assert verdict.keys() == {sick}
    cards.set_condition(sick, FakeCondition())

    for name, restart in RESTARTS.items():
        restart(node)
        node.wait_ready("app.kubernetes.io/name=vrampack-agent", namespace=NAMESPACE, timeout_seconds=120)
        node.wait(lambda: read_allocatable(node) == 15, what=lambda: f"{read_allocatable(node)} units are left")
        assert (name, read_verdicts(node)) == (name, verdict)
    assert start(node, "after", 4) == other

    cards.set_condition(sick, FakeCondition(remap_pending=0, remap_failed=0))
    node.wait(lambda: read_card_health(node) == {sick: True, other: True}, what="NVML says that it is repaired")
    node.wait(lambda: read_cards_condition(node) == "True CardsHealthy", what=lambda: read_cards_condition(node))
    node.wait(lambda: read_allocatable(node) == 30, what=lambda: f"{read_allocatable(node)} units are left")


def test_a_card_returns_once_nvml_no_longer_requests_a_reset(
    node: LiveNode, cards: FakeNvmlMachine, pair: tuple[StubGpu, ...]
) -> None:
    """Without any XID. NVML reports nothing to the next agent, which does not count as a repair."""
    sick, other = (gpu.uuid for gpu in pair)
    cards.set_condition(sick, FakeCondition(recovery_action=1))
    node.wait(lambda: read_card_health(node) == {sick: False, other: True}, what="its annotation says so")
    (card,) = (each for each in read_annotated_cards(node) if each["uuid"] == sick)
    assert card["reason"] == "NVML asks for recovery action 1: reset the GPU"
    cards.set_condition(sick, FakeCondition())

    old = node.kill_agent()
    node.wait(lambda: (pids := node.agent_pids()) and old not in pids, what="the agent runs again")
    node.wait_ready("app.kubernetes.io/name=vrampack-agent", namespace=NAMESPACE)
    node.wait(lambda: read_allocatable(node) == 15, what=lambda: f"{read_allocatable(node)} units are left")
    assert start(node, "after", 4) == other  # as a first pod it would get the card with the lower index
    assert read_verdicts(node) == {sick: card["verdict"]}

    cards.set_condition(sick, FakeCondition(recovery_action=0))
    node.wait(lambda: read_card_health(node) == {sick: True, other: True}, what="NVML asks for none")
    node.wait(lambda: read_allocatable(node) == 30, what=lambda: f"{read_allocatable(node)} units are left")


def test_a_pod_that_waits_is_woken_when_the_card_heals(node: LiveNode, cards: FakeNvmlMachine) -> None:
    """The scheduler itself sees room on the node, 14 of 30 units; only the extender knows that no card has 8 of them.

    The node's own change may make the scheduler ask before the extender has to kick; its flush, after 300 s, is too late.
    """
    with with_gpus(node, cards, v100s(3)) as three:
        sick = three[0].uuid
        cards.lose(sick)
        node.wait(lambda: read_card_health(node)[sick] is False, what="it is lost")
        node.wait(lambda: read_allocatable(node) == 30, what=lambda: f"{read_allocatable(node)} units are left")
        assert {start(node, name, 8) for name in ("one", "two")} == {gpu.uuid for gpu in three[1:]}
        node.apply(a_pod("waits", main=8))
        node.wait(lambda: "FailedScheduling" in node.events("waits"), what="it is refused")

        cards.heal()
        node.wait(lambda: has_ready_condition(node.get("pod", "waits")), what=lambda: node.describe(""))
        assert inspect_holdings(node)["waits", sick] == 8
        assert sum_metric(node, "vrampack-scheduler", "vrampack_bound_after_flush_total") == 0


def test_a_cordoned_card_gets_no_pods(node: LiveNode, pair: tuple[StubGpu, ...]) -> None:
    parked = start(node, "before", 4)
    (other,) = {gpu.uuid for gpu in pair} - {parked}
    _vrampack(node, "card", "cordon", NODE_NAME, parked)
    try:
        assert start(node, "after", 4) == other
        assert start(node, "full", 11) == other
        node.apply(a_pod("waits", main=4))
        node.wait(lambda: "FailedScheduling" in node.events("waits"), what="it is refused")
        assert read_allocatable(node) == 30  # kubelet is not told: to the node the card is fine
    finally:
        _vrampack(node, "card", "uncordon", NODE_NAME, parked)
    node.wait(lambda: has_ready_condition(node.get("pod", "waits")), what=lambda: node.describe(""))
    assert ("waits", parked) in inspect_holdings(node)
    assert {card["uuid"] for card in read_published_cards(node)} == {parked, other}


def read_verdicts(node: LiveNode) -> dict[str, object]:
    """By uuid, as the node's own annotation has them."""
    return {card["uuid"]: card["verdict"] for card in read_annotated_cards(node) if "verdict" in card}


def read_cards_condition(node: LiveNode) -> str:
    conditions = node.get("node", NODE_NAME)["status"]["conditions"]
    return " ".join(f"{each['status']} {each['reason']}" for each in conditions if each["type"] == CARDS_CONDITION)


def _vrampack(node: LiveNode, *arguments: str) -> None:
    command = [sys.executable, "-m", "vrampack.cli", *arguments, "--kubeconfig", str(node.cluster.admin)]
    subprocess.run(command, check=True, capture_output=True)
