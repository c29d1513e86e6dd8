"""What a scrape says of pods that wait, and that it costs the same whatever they ask for."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from extender.state.collector import MAX_EVALUATED_SHAPES, LedgerCollector, LedgerSnapshot
from tests.support.builders import ledger_pod, pod_request, snapshot_node
from vrampack.cards.node import Node
from vrampack.cards.request import PodRequest

CLUSTER = (snapshot_node("a", used=(10, 10)), snapshot_node("b", units=(80,), used=(80,)))
"""Free are 6 and 6, and nothing."""


def count_pending(asked: Iterable[PodRequest], nodes: tuple[Node, ...] = CLUSTER) -> dict[str, int]:
    pods = tuple(ledger_pod(f"p{at}", ask=each) for at, each in enumerate(asked))
    snapshot = LedgerSnapshot(nodes, pods, (), b"", {}, is_synced=True, now=0.0)
    (metric,) = (each for each in LedgerCollector(snapshot).collect() if each.name == "vrampack_pending_pods")
    return {sample.labels["reason"]: int(sample.value) for sample in metric.samples if sample.value}


REASONS = {
    "fits": (pod_request(6), "fits"),
    # 6 + 6 on two cards
    "the sum would do": (pod_request(12), "fragmented"),
    "more than any sum": (pod_request(14), "full"),
    "larger than any card": (pod_request(81), "never"),
    "a card that has room": (pod_request(6, annotations={"vrampack.dev/card-uuid": "GPU-0,GPU-none"}), "fits"),
    "a card that has none": (pod_request(7, annotations={"vrampack.dev/card-uuid": "GPU-1"}), "fragmented"),
    "a card that is nowhere": (pod_request(6, annotations={"vrampack.dev/card-uuid": "GPU-none"}), "never"),
    "a model that is nowhere": (pod_request(6, annotations={"vrampack.dev/card-model": "none"}), "never"),
    "not valid": (pod_request(6, labels={"aliyun.com/gpu-count": "none"}), "never"),
}


@pytest.mark.parametrize(("asked", "want"), REASONS.values(), ids=REASONS)
def test_a_pending_pod_is_counted_by_what_it_waits_for(asked: PodRequest, want: str) -> None:
    assert count_pending([asked]) == {want: 1}


def test_only_nodes_of_other_plugins_are_legacy() -> None:
    snapshot = LedgerSnapshot(
        (snapshot_node("ours"), snapshot_node("theirs", legacy=True)), (), (), b"", {}, is_synced=True, now=0.0
    )
    (metric,) = (each for each in LedgerCollector(snapshot).collect() if each.name == "vrampack_legacy_node_info")
    assert [(sample.labels, sample.value) for sample in metric.samples] == [({"node": "theirs"}, 1)]


def test_without_nodes_no_pod_will_ever_fit() -> None:
    assert count_pending([pod_request()], ()) == {"never": 1}


def test_a_scrape_evaluates_only_the_most_common_requests() -> None:
    """What pods ask for in a thousand ways is no reason to hold the interpreter for seconds."""
    sizes = [pod_request(units, count=1 + whole, whole=bool(whole)) for units in range(2, 80, 2) for whole in (0, 1)]
    assert len(sizes) > MAX_EVALUATED_SHAPES
    counted = count_pending([*sizes, *[pod_request(79)] * 3])
    assert counted["other"] == len(sizes) + 1 - MAX_EVALUATED_SHAPES
    assert sum(counted.values()) == len(sizes) + 3


def test_requests_for_missing_cards_are_evaluated_once() -> None:
    wishes = [pod_request(annotations={"vrampack.dev/card-uuid": f"GPU-none-{at}"}) for at in range(1000)]
    assert count_pending(wishes) == {"never": 1000}
