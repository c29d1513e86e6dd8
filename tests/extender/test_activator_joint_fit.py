"""The pods that an activation round wakes fit together, whatever the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extender.activator_harness import ActivatorHarness
from tests.support.builders import ledger_pod, node_facts
from tests.support.strategies import request_strategy
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Node, NodeFacts, Share
from vrampack.cards.records import Record
from vrampack.cards.request import CardRequest, ContainerRequest, PodRequest


@st.composite
def some_facts(draw: st.DrawFn, name: str) -> tuple[NodeFacts, tuple[int, ...]]:
    """A node of up to three cards, and what is held on each."""
    units = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    used = tuple(draw(st.integers(0, each)) for each in units)
    facts = node_facts(name, *units)
    models, healthy = st.sampled_from("AB"), st.sampled_from((True, True, False))
    return replace(facts, cards=tuple(replace(c, model=draw(models), healthy=draw(healthy)) for c in facts.cards)), used


@settings(deadline=None)
@given(data=st.data())
def test_pods_woken_in_a_round_fit_together_and_no_other_fits_beside_them(data: st.DataObject) -> None:
    """Counted card by card in the order of urgency: who fits beside the more urgent that were woken is woken."""
    names = [f"n{number}" for number in range(data.draw(st.integers(1, 3)))]
    cluster = [data.draw(some_facts(name)) for name in names]
    asked = data.draw(st.lists(st.tuples(request_strategy(under_rules=False), st.integers(0, 2)), max_size=8))
    asyncio.run(check_a_round(cluster, asked))


async def check_a_round(cluster: list[tuple[NodeFacts, tuple[int, ...]]], asked: list[tuple[CardRequest, int]]) -> None:
    stage = ActivatorHarness()
    for number, (request, priority) in enumerate(asked):
        ask = PodRequest(request, (ContainerRequest("main", "main", 0, request.units),))
        stage.ledger.update_pod(ledger_pod(f"p{number}", ask=ask, priority=priority))
        stage.reject_pod(f"p{number}")
    for facts, used in cluster:
        shares = tuple(Share(units, f"GPU-{index}", index) for index, units in enumerate(used))
        stage.ledger.update_pod(ledger_pod(f"on-{facts.name}", node=facts.name, record=Record("vrampack", shares)))
        stage.put_node(facts)
    woken = {attempt.pod.uid: attempt for attempt in await stage.run_round_attempts()}
    filled = {node.name: node for node in stage.ledger.list_nodes()}
    for number in sorted(range(len(asked)), key=lambda at: (-asked[at][1], at)):
        request, attempt = asked[number][0], woken.get(f"p{number}")
        fitting = {name for name, node in filled.items() if not isinstance(find_fitting_cards(node, request), Unfit)}
        assert (attempt is not None) == bool(fitting)
        if attempt is not None:
            name = attempt.placement.node_name
            assert name in fitting
            filled[name] = with_used(filled[name], attempt.placement.cards, request)


def with_used(node: Node, indices: Collection[int], request: CardRequest) -> Node:
    """The node with the request on these cards, each of which must take it."""
    assert len(indices) == request.count
    cards = list(node.cards)
    for index in indices:
        card = cards[index]
        held = card.units if request.whole else request.units
        assert card.is_usable
        assert card.used_units + held <= card.units
        cards[index] = replace(card, used_units=card.used_units + held)
    return replace(node, cards=tuple(cards))
