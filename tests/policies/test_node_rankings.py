"""Rankings of policies that look ahead: a state is scored once, and a new forecast costs no call anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from policies import tessellate
from policies.engine.engine import Engine
from policies.engine.node_rankings import STATES_PER_SLICE
from policies.mix.forecast import build_forecast
from policies.mix.request_mix import MixedRequest, RequestMix
from policies.outlook import Outlook
from policies.policy import ScoredCards
from policies.tuning import PolicyTuning
from tests.policies.fake_ledger import FakeLedger
from tests.support.builders import pod_request, snapshot_node
from tests.support.call_counter import count_calls
from vrampack.cards.node import Card, Node
from vrampack.cards.node_summary import NodeSummary
from vrampack.cards.request import CardRequest


class CountingPolicy:
    """Tessellate, and how many states it scored."""

    LOOKS_AHEAD = True
    READS_HOSTS = True
    COUNTS_LEFTOVERS = False

    def __init__(self) -> None:
        self.scored = 0

    def choose_cards(
        self, node: Node, fitting: tuple[Card, ...], request: CardRequest, outlook: Outlook
    ) -> ScoredCards:
        return tessellate.choose_cards(node, fitting, request, outlook)

    def score_nodes(
        self, summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, outlook: Outlook
    ) -> Iterator[tuple[str, float]]:
        for scored in tessellate.score_nodes(summaries, request, outlook):
            self.scored += 1
            yield scored


class RankedCluster:
    def __init__(self, *nodes: Node) -> None:
        self.ledger = FakeLedger(nodes)
        self.policy = CountingPolicy()
        self.engine = Engine(self.ledger, PolicyTuning(default="tessellate"), policies={"tessellate": self.policy})

    def count_scored(self) -> int:
        """By one more call for the same request."""
        before = self.policy.scored
        self.engine.rank_nodes(self.ledger.nodes, pod_request(4), "p", 3)
        return self.policy.scored - before


def test_equal_nodes_are_scored_once_and_a_changed_node_alone_again() -> None:
    cluster = RankedCluster(*(snapshot_node(f"n{at}") for at in range(50)), snapshot_node("used", used=(4, 0)))
    assert cluster.count_scored() == 2
    assert cluster.count_scored() == 0
    cluster.ledger.put(snapshot_node("n7", used=(8, 0)))
    assert cluster.count_scored() == 1
    cluster.ledger.put(snapshot_node("n7"))
    assert cluster.count_scored() == 0


def test_nodes_are_grouped_in_slices_ahead_of_the_first_call() -> None:
    """500 nodes are summarized and then grouped, 200 at a time."""
    cluster = RankedCluster(*(snapshot_node(f"n{at}") for at in range(500)))
    slices = 1
    while cluster.engine.follow_slice((), 200):
        slices += 1
    assert slices == 5
    calls = count_calls(cluster.engine.find_best_node, cluster.ledger.nodes, pod_request(4), "p")
    assert calls < len(cluster.ledger.nodes)


def test_a_node_without_room_is_not_scored() -> None:
    cluster = RankedCluster(snapshot_node("full", used=(16, 14)), snapshot_node("open"))
    assert cluster.count_scored() == 1


def test_a_new_forecast_is_adopted_in_slices_and_costs_the_next_call_nothing() -> None:
    """As many states as nodes: each has another number of units in use."""
    nodes = [snapshot_node(f"n{at:03}", units=(1000,), used=(at,)) for at in range(2 * STATES_PER_SLICE + 20)]
    cluster = RankedCluster(*nodes)
    cluster.count_scored()
    forecast = build_forecast(RequestMix({MixedRequest(CardRequest(5)): 1.0}), cluster.engine.count_cards())
    steps = cluster.engine.adopt_forecast(forecast)
    before = cluster.policy.scored
    assert len(list(islice(steps, 1))) == 1
    assert 0 < cluster.policy.scored - before <= STATES_PER_SLICE
    assert cluster.engine.forecast is not forecast
    assert len(list(steps)) >= 1
    assert cluster.engine.forecast is forecast
    assert cluster.count_scored() == 0
