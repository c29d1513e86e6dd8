"""Which nodes a page lists, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vrampack.cli.ui.cluster_reading import NodeOverview, count_problems

MAX_TEXT = 253
"""The maximum length of an object's name."""


def _share_free(reading: NodeOverview) -> float:
    node = reading.counted.node
    return node.free_units / node.total_units if node.total_units else 0.0


ORDERS: dict[str, tuple[str, Callable[[NodeOverview], Any]]] = {  # Any: a sort key
    "name": ("name", lambda each: each.name),
    "free": ("most free on one card", lambda each: (-each.counted.node.largest_free_units, each.name)),
    "full": ("fullest", lambda each: (_share_free(each), each.name)),
    "problems": ("most problems", lambda each: (-count_problems(each.counted), each.name)),
}
"""By the word in the URL: its name on the page, and the sort key."""


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """The filter and order in the URL."""

    text: str = ""
    """Part of a node's name, or of the namespace/name of a pod there."""
    order: str = "name"


def read_node_filter(text: str, order: str) -> NodeFilter:
    """Read the filter; unknown values are ignored."""
    return NodeFilter(text.strip()[:MAX_TEXT], order if order in ORDERS else "name")


def filter_nodes(nodes: Sequence[NodeOverview], chosen: NodeFilter) -> list[NodeOverview]:
    """The nodes that match, in the chosen order."""
    found = [each for each in nodes if _matches(each, chosen.text)]
    return found if chosen.order == "name" else sorted(found, key=ORDERS[chosen.order][1])


def _matches(reading: NodeOverview, text: str) -> bool:
    return not text or text in reading.name or any(text in str(hold.pod) for hold in reading.counted.holds)
