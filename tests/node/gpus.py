"""The node's cards as the driver shows them, replaced by others during a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import StubGpu
from tests.node.api_reader import Json
from tests.node.controlplane import NODE_NAME
from tests.node.node import NAMESPACE, LiveNode
from tests.node.nvidia_spec import write_nvidia_spec
from tests.node.pods import RESOURCE
from vrampack.cards import well_known

UNIT_MIB = 1024


@contextmanager
def with_gpus(node: LiveNode, cards: FakeNvmlMachine, gpus: tuple[StubGpu, ...]) -> Iterator[tuple[StubGpu, ...]]:
    """These cards are in the machine; the agent finds them while it runs.

    A card that is pulled stays listed until the agent restarts, so that comes with putting the old ones back.
    """
    were = cards.gpus
    _set_gpus(node, cards, gpus)
    try:
        wait_until_offered(node, gpus)
        yield gpus
    finally:
        node.clear()
        _set_gpus(node, cards, were)
        cards.heal()
        old = node.kill_agent()
        node.wait(lambda: (pids := node.agent_pids()) and old not in pids, what="the agent runs again")
        wait_until_offered(node, were)
        node.wait_ready("app.kubernetes.io/name=vrampack-agent", namespace=NAMESPACE)


def _set_gpus(node: LiveNode, cards: FakeNvmlMachine, gpus: tuple[StubGpu, ...]) -> None:
    if not node.release.is_driver_everywhere:
        write_nvidia_spec(gpus, node.driver.mounts)
    cards.set_gpus(gpus)


def wait_until_offered(node: LiveNode, gpus: tuple[StubGpu, ...]) -> None:
    """Wait until these, and no others, are published, and all their units can be had."""
    uuids = {gpu.uuid for gpu in gpus}
    units = sum(gpu.memory_mib // UNIT_MIB for gpu in gpus)
    node.wait(
        lambda: read_card_health(node).keys() == uuids,
        what=lambda: f"{uuids}: {read_card_health(node)}",
    )
    node.wait(
        lambda: read_allocatable(node) == units, what=lambda: f"{read_allocatable(node)} of {units} units are offered"
    )


def read_allocatable(node: LiveNode) -> int:
    """Units that kubelet has healthy devices for."""
    return int(node.get("node", NODE_NAME)["status"]["allocatable"].get(RESOURCE, "0"))


def read_card_health(node: LiveNode) -> dict[str, bool]:
    """By uuid, as the node's own annotation says it."""
    return {card["uuid"]: card["healthy"] for card in read_annotated_cards(node)}


def read_annotated_cards(node: LiveNode) -> list[Json]:
    """The cards as the agent wrote them on the Node, verdicts included."""
    annotations = node.get("node", NODE_NAME)["metadata"]["annotations"]
    return list(json.loads(annotations.get(well_known.NODE_CARDS, '{"cards":[]}'))["cards"])
