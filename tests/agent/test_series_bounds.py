"""How many series an agent has with 100 pods on 8 cards, and what 5,000 such nodes come to."""

from __future__ import annotations

from vrampack.agent.metrics import AgentMetrics, AgentSnapshot, CardSample, ContainerSample, ProcessSample
from vrampack.cards.node import CardFacts

NODES = 5_000
PODS = 100
CARDS = 8
OF_A_CARD = 7
OF_A_CONTAINER = 5
"""On each of its cards; and its processes once."""
FIXED = 200
"""Of an agent without cards, histograms for the most part."""
IN_TOTAL = 3_850_000


def count_series(cards: int, pods: int) -> int:
    metrics = AgentMetrics("test", node="n")
    metrics.register_snapshot(lambda: build_snapshot(cards, pods))
    return sum(bool(line) and not line.startswith(b"#") for line in metrics.render_page().splitlines())


def build_snapshot(cards: int, pods: int) -> AgentSnapshot:
    """As full as a page can be: every figure is known."""
    return AgentSnapshot(
        cards=tuple(CardSample(CardFacts(at, 80, 81920, uuid=f"GPU-{at}"), 80, 1, 50) for at in range(cards)),
        containers=tuple(
            ContainerSample(f"GPU-{at % CARDS}", at % CARDS, "ml", f"p{at}", "main", 2, 1, 1, 0, 50)
            for at in range(pods)
        ),
        processes=tuple(ProcessSample("ml", f"p{at}", "main", 1) for at in range(pods)),
        enforcement="kmod",
    )


def test_series_grow_with_cards_and_containers_alone() -> None:
    fixed = count_series(0, 0)
    assert fixed <= FIXED
    full = count_series(CARDS, PODS)
    assert full == fixed + OF_A_CARD * CARDS + (OF_A_CONTAINER + 1) * PODS
    assert NODES * full <= IN_TOTAL
