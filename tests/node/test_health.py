"""One of two cards is sick, or kept out of use: the other goes on, and who waited is bound when it is back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import V100_16130_MIB, StubGpu, stub_gpus
from tests.node.card_agreement import inspect_holdings, list_container_starts, read_published_cards
from tests.node.controlplane import NODE_NAME
from tests.node.gpus import read_allocatable, read_card_health, with_gpus
from tests.node.metrics import sum_metric
from tests.node.node import LiveNode, has_ready_condition
from tests.node.pods import a_pod, annotated

FALLEN_OFF_THE_BUS = 79


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
    """What runs on it is not disturbed, and the fuller card is not the better one any more."""
    sick = start(node, "before", 4)
    (other,) = {gpu.uuid for gpu in pair} - {sick}
    was = list_container_starts(node, "before")

    cards.fail("nvmlDeviceGetMemoryInfo", 999, sick)
    cards.xid(sick, FALLEN_OFF_THE_BUS)
    node.wait(lambda: read_card_health(node) == {sick: False, other: True}, what="its annotation says so")
    node.wait(lambda: read_allocatable(node) == 15, what=lambda: f"{read_allocatable(node)} units are left")
    told = f"GPUMemoryCardUnhealthy: card {sick} unhealthy: XID {FALLEN_OFF_THE_BUS}"
    node.wait(lambda: told in node.events(NODE_NAME), what=lambda: node.events(NODE_NAME))
    assert start(node, "after", 4) == other
    assert list_container_starts(node, "before") == was

    cards.heal()
    node.wait(lambda: read_card_health(node) == {sick: True, other: True}, what="it has recovered")
    node.wait(lambda: read_allocatable(node) == 30, what=lambda: f"{read_allocatable(node)} units are left")
    told_again = f"GPUMemoryCardRecovered: card {sick}"
    node.wait(lambda: told_again in node.events(NODE_NAME), what=lambda: node.events(NODE_NAME))
    assert list_container_starts(node, "before") == was
    assert sum_metric(node, "vrampack-agent", "vrampack_agent_xid_errors_total", UUID=sick, xid="79") == 1


def test_a_pod_that_waits_is_woken_when_the_card_heals(node: LiveNode, cards: FakeNvmlMachine) -> None:
    """To the scheduler itself the node has room, 14 of 30 units; that no card has 8 of them only the extender knows.

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


def _vrampack(node: LiveNode, *arguments: str) -> None:
    command = [sys.executable, "-m", "vrampack.cli", *arguments, "--kubeconfig", str(node.cluster.admin)]
    subprocess.run(command, check=True, capture_output=True)
