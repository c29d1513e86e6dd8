"""A node without the agent, described by hand as the install page says: admission, extender and kubelet do the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node.api_reader import Json
from tests.node.controlplane import NODE_NAME
from tests.node.node import LiveNode, has_ready_condition
from tests.node.pods import RESOURCE, VARIABLES, a_pod, annotated
from tests.support.manifest_builders import cards_annotation, published_card

UUID = "GPU-by-hand"


@pytest.fixture
def described_node(installed: LiveNode) -> Iterator[LiveNode]:
    """The two commands of docs/install.md, and their undoing."""
    installed.kubectl(
        "annotate", "node", NODE_NAME, f"vrampack.dev/cards={cards_annotation(published_card(0, uuid=UUID))}"
    )
    _offer(installed, '"15"')
    yield installed
    _offer(installed, "null")
    installed.kubectl("annotate", "node", NODE_NAME, "vrampack.dev/cards-")


def test_a_container_gets_its_card_from_the_annotations_of_its_pod(described_node: LiveNode) -> None:
    described_node.apply(a_pod("by-hand", main=4, beside=0))
    pod = described_node.wait(lambda: _ready(described_node), what=lambda: described_node.describe(""))
    assert pod["spec"]["schedulerName"] == "vrampack"

    seen = described_node.environment("by-hand", container="main")
    assert {name: seen[name] for name in VARIABLES} == annotated(pod, "main")
    assert (seen["NVIDIA_VISIBLE_DEVICES"], seen["NVIDIA_GPU_MEMORY_LIMIT"]) == (UUID, "4301")  # 16130 * 4 / 15
    assert seen["ALIYUN_COM_GPU_MEM_CONTAINER"] == "4"
    assert described_node.environment("by-hand", container="beside")["NVIDIA_VISIBLE_DEVICES"] == "void"


def _offer(node: LiveNode, units: str) -> None:
    patch = f'{{"status":{{"capacity":{{"{RESOURCE}":{units}}}}}}}'
    node.kubectl("patch", "node", NODE_NAME, "--subresource=status", "--type=merge", "-p", patch)


def _ready(node: LiveNode) -> Json:
    pod = node.get("pod", "by-hand")
    return pod if has_ready_condition(pod) else None
