"""How many series there are, counted at 5,000 nodes with 100 pods each: what grows with nodes, cards and containers, and nothing else."""

from __future__ import annotations

from extender.metrics import VERBS, ExtenderMetrics
from extender.state.collector import LedgerCollector, LedgerSnapshot
from extender.state.node_series import NODE_METRICS, NodeSeries
from tests.support.builders import ledger_pod, pod_request, snapshot_node
from vrampack.cards.pod import Pod

NODES = 5_000
PODS_PER_NODE = 100
FIXED = 800
"""Of an extender without nodes that has answered every verb in every way, and made calls of every kind to the API server."""
API_CALLS = [("list", "pods"), ("watch", "pods"), ("get", "pods"), ("patch", "pods"), ("create", "pods/binding")]
API_CALLS += [("list", "nodes"), ("watch", "nodes"), ("create", "events"), ("list", "deviceclasses")]
CODES = (0, 200, 201, 404, 409, 410, 429, 500)


def count_series(page: bytes) -> int:
    return sum(bool(line) and not line.startswith(b"#") for line in page.splitlines())


async def render_page(node_count: int, pods: tuple[Pod, ...]) -> bytes:
    nodes = tuple(snapshot_node(f"n{at}", used=(10, 4)) for at in range(node_count))
    text = await NodeSeries().render_text(nodes, {})
    snapshot = LedgerSnapshot(nodes, pods, (), text, {"pods": 1.0, "nodes": 1.0}, is_synced=True, now=0.0)
    metrics = ExtenderMetrics("test")
    for verb in VERBS:
        for result in ("ok", "no", "error"):
            metrics.request_seconds.labels(verb, result)
    for verb, resource in API_CALLS:
        for code in CODES:
            metrics.observe_call(verb=verb, resource=resource, code=code, seconds=0.0)
    return metrics.render_page(LedgerCollector(snapshot)) + text


async def test_an_extender_has_four_series_for_each_node_and_none_for_a_pod() -> None:
    fixed = count_series(await render_page(0, ()))
    assert fixed <= FIXED
    waiting = (ledger_pod("p", ask=pod_request(6)),) * (NODES * PODS_PER_NODE)
    assert len(NODE_METRICS) == 4
    assert count_series(await render_page(NODES, waiting)) == fixed + 4 * NODES
