"""The metrics of each node are the text that the client library would make, and nodes that did not change cost next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from extender.state.node_series import NODE_METRICS, NodeSeries, compute_node_figures
from tests.support.builders import snapshot_node
from tests.support.call_counter import count_calls
from vrampack.cards.node import Node

DRIFT = {"b": 2}


class PlainCollector(Collector):
    """Renders every line from metric objects of the client library."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = [node for node in nodes if node.cards]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for position, (name, text) in enumerate(NODE_METRICS.items()):
            family = GaugeMetricFamily(name, text, labels=["node"])
            for node in self._nodes:
                family.add_metric([node.name], compute_node_figures(node, DRIFT.get(node.name, 0))[position])
            yield family


def render_plainly(nodes: Iterable[Node]) -> bytes:
    registry = CollectorRegistry()
    registry.register(PlainCollector(nodes))
    return generate_latest(registry)


async def test_rendered_text_equals_that_of_the_client_library() -> None:
    nodes = [
        snapshot_node("a", used=(10, 4)),
        snapshot_node("b", units=(80,)),
        snapshot_node('odd"\\\n'),
        snapshot_node("bare", units=()),
    ]
    series = NodeSeries()
    assert await series.render_text(nodes, DRIFT) == render_plainly(nodes)
    nodes = [snapshot_node("a", used=(10, 5)), nodes[1]]
    assert await series.render_text(nodes, DRIFT) == render_plainly(nodes)
    assert await series.render_text(nodes, {}) != render_plainly(nodes)


def test_nodes_that_did_not_change_are_not_rendered_again() -> None:
    nodes, series = [snapshot_node(f"n{at}") for at in range(100)], NodeSeries()

    def render_text() -> None:
        asyncio.run(series.render_text(nodes, {}))

    first = count_calls(render_text)
    assert count_calls(render_text) < first - 20 * len(nodes)
