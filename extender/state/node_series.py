"""The metrics of each node, as text that is cached until the node changes.

A scrape of 5,000 nodes has 20,000 such lines, and few of them change between scrapes. A thread that rendered all of them
kept the event loop waiting for the interpreter lock: 0.3 s in all, five milliseconds at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prometheus_client.utils import floatToGoString

from vrampack.cards.node import Node
from vrampack.cards.units import MIB

NODES_PER_SLICE = 100
"""Nodes between two yields to the event loop: about 2 ms where all of them changed."""
NODE_METRICS = {
    "vrampack_node_memory_capacity_bytes": "GPU memory of the node's cards.",
    "vrampack_node_memory_allocated_bytes": "GPU memory held by pods.",
    "vrampack_fragmented_free_bytes": "Free GPU memory of the node that is not on its freest card.",
    "vrampack_ledger_drift_bytes": "Difference between the ledger and a fresh count; must be 0.",
}
"""The help text of each gauge with the label `node`."""


class _NodeLines(NamedTuple):
    node: Node
    drift_units: int
    lines: tuple[str, ...]
    """One line for each of `NODE_METRICS`, in their order."""


class NodeSeries:
    """Renders `NODE_METRICS`."""

    def __init__(self) -> None:
        self._kept: dict[str, _NodeLines] = {}

    async def render_text(self, nodes: Sequence[Node], drift_units: Mapping[str, int]) -> bytes:
        """The lines of these nodes, with HELP and TYPE. Nodes without cards have none."""
        found: dict[str, _NodeLines] = {}
        for count, node in enumerate(nodes, start=1):
            if node.cards:
                found[node.name] = self._render_node(node, drift_units.get(node.name, 0))
            if count % NODES_PER_SLICE == 0:
                await asyncio.sleep(0)
        self._kept = found
        parts = []
        for position, (name, text) in enumerate(NODE_METRICS.items()):
            parts.append(f"# HELP {name} {text}\n# TYPE {name} gauge\n")
            parts += [each.lines[position] for each in found.values()]
            await asyncio.sleep(0)
        return "".join(parts).encode()

    def _render_node(self, node: Node, drift_units: int) -> _NodeLines:
        kept = self._kept.get(node.name)
        if kept is not None and kept.node is node and kept.drift_units == drift_units:
            return kept
        figures = compute_node_figures(node, drift_units)
        label = node.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines = (
            f'{name}{{node="{label}"}} {floatToGoString(each)}\n'
            for name, each in zip(NODE_METRICS, figures, strict=True)
        )
        return _NodeLines(node, drift_units, tuple(lines))


def compute_node_figures(node: Node, drift_units: int) -> tuple[int, ...]:
    """Bytes for each of `NODE_METRICS`, in their order."""
    unit_bytes = node.unit_mib * MIB
    return (
        sum(card.memory_mib for card in node.cards) * MIB,
        node.used_units * unit_bytes,
        (node.free_units - node.largest_free_units) * unit_bytes,
        drift_units * unit_bytes,
    )
