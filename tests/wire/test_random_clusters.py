"""On any cluster, filter and prioritize agree with the oracle: no more nodes, no fewer, and the same reasons."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.support.in_memory_extender import InMemoryExtender
from tests.support.random_clusters import RandomCluster, random_cluster
from tests.wire import oracle


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**64))
def test_the_service_agrees_with_the_oracle(seed: int) -> None:
    cluster = random_cluster(seed)
    extender = InMemoryExtender(cluster.nodes, cluster.pods)
    body = json.dumps({"Pod": cluster.asking, "Nodes": None, "NodeNames": cluster.names}).encode()
    check_ledger(cluster, extender)
    before = extender.state()
    check_filter(cluster, json.loads(extender.verbs.filter(body).body))
    check_prioritize(cluster, json.loads(extender.verbs.prioritize(body).body))
    assert extender.state() == before


def check_ledger(cluster: RandomCluster, extender: InMemoryExtender) -> None:
    """Every card holds what the oracle counts on it; a refused node may still show cards, and nothing goes there."""
    for raw in cluster.nodes:
        node = extender.ledger.get_node(raw["metadata"]["name"])
        assert node is not None
        want = sorted((card.index, card.units, card.used) for card in oracle.loaded_cards(raw, cluster.pods))
        if not node.problem or node.injection is None:
            assert [(card.index, card.units, card.used_units) for card in node.cards] == want


def check_filter(cluster: RandomCluster, answer: dict[str, Any]) -> None:
    """Sound, complete, with the oracle's reasons; every name in exactly one place, passed ones in their order."""
    want = oracle.oracle_filter(cluster.nodes, cluster.pods, cluster.asking, cluster.names)
    for text in (*want.later.values(), *want.never.values(), *(["passed"] if want.passed else [])):
        event(text)
    assert answer == {
        "Nodes": None,
        "NodeNames": want.passed,
        "FailedNodes": want.later,
        "FailedAndUnresolvableNodes": want.never,
        "Error": "",
    }
    said = [*answer["NodeNames"], *answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]]
    assert sorted(said) == sorted(set(cluster.names))
    assert answer["NodeNames"] == [name for name in dict.fromkeys(cluster.names) if name in answer["NodeNames"]]


def check_prioritize(cluster: RandomCluster, answer: list[dict[str, Any]]) -> None:
    """Whole numbers, 10 for the best node, in the total order of `binpack`."""
    want = oracle.oracle_scores(cluster.nodes, cluster.pods, cluster.asking, cluster.names)
    assert answer == [{"Host": host, "Score": score} for host, score in want.items()]
    assert all(isinstance(each["Score"], int) for each in answer)
