"""The states of a varied cluster are scored for a new kind of request in steps, between which other verbs have their turn."""

from __future__ import annotations

import json

from extender.wire.codec import VerbResponse
from policies.engine.engine import STATES_PER_STEP
from policies.engine.node_rankings import MANY_STATES
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod
from tests.support.call_counter import count_calls
from tests.support.turn_counter import TurnCounter
from vrampack.cards.node import Share
from vrampack.cards.records import Record
from vrampack.cards.request import CardRequest, PodRequest

CALLS_PER_STATE = 50
"""Of Python's functions and C's: a step of so many states takes less than a millisecond."""


async def build_varied_cluster(nodes: int) -> SchedulerHarness:
    """Of nodes of which no two are alike, one of whose requests has been asked for."""
    desk = SchedulerHarness({f"n{at:03}": [80, 80] for at in range(nodes)})
    for at, name in enumerate(desk.names):
        shares = (Share(1 + at % 60, "GPU-0", 0), Share(1 + at // 60, "GPU-1", 1))
        desk.ledger.update_pod(ledger_pod(f"on-{name}", node=name, record=Record("vrampack", shares)))
    await desk.parts.engine_follower.catch_up()
    desk.parts.engine.rank_nodes(desk.names, PodRequest(CardRequest(1), ()), "known", 1)
    return desk


async def test_each_preparation_step_scores_few_states_and_the_verb_scores_none() -> None:
    """For two cards tessellate has no bound that is cheaper than a score."""
    desk, request = await build_varied_cluster(2 * MANY_STATES), PodRequest(CardRequest(3, count=2), ())
    engine = desk.parts.engine
    assert not engine.is_prepared(request, "new")
    preparation, steps = engine.prepare_request(request, "new"), []
    while not engine.is_prepared(request, "new"):
        steps.append(count_calls(next, preparation))
    list(preparation)
    assert max(steps) < CALLS_PER_STATE * STATES_PER_STEP
    assert count_calls(engine.rank_nodes, desk.names, request, "new", 1) < 3 * len(desk.names)


async def test_a_call_for_a_new_request_yields_to_other_tasks() -> None:
    desk = await build_varied_cluster(2 * MANY_STATES)
    turns = TurnCounter()
    answer = desk.parts.timed_verbs.filter.answer_call(desk.encode_call("first"))
    assert not isinstance(answer, VerbResponse)
    assert len(json.loads((await answer).body)["NodeNames"]) == 2 * MANY_STATES
    assert turns.stop() > 2 * MANY_STATES // STATES_PER_STEP
    assert isinstance(desk.parts.timed_verbs.filter.answer_call(desk.encode_call("second")), VerbResponse)


async def test_few_states_are_scored_by_the_call_itself() -> None:
    desk = await build_varied_cluster(MANY_STATES // 2)
    assert isinstance(desk.parts.timed_verbs.filter.answer_call(desk.encode_call("first")), VerbResponse)
