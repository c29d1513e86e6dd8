"""What rules leave of each node is worked out in steps, between which other verbs have their turn."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from extender.policy_settings import PolicyTuning
from extender.rule_settings import RuleSettings
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from extender.state.placement_change import apply_placement
from extender.wire.codec import VerbResponse
from policies.engine.engine import MAX_FLOORS, NODES_PER_STEP, Engine
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod, node_facts
from tests.support.call_counter import count_calls
from tests.support.turn_counter import TurnCounter
from vrampack.cards.node import Share
from vrampack.cards.profiles import PlacementSettings
from vrampack.cards.records import Record
from vrampack.cards.request import PodRequest

RULES = RuleSettings(max_pods_per_card=2, share_with="same-namespace")
NODES = 4 * NODES_PER_STEP
CALLS_PER_NODE = 150
"""Of Python's functions and C's, for what rules leave of a node of one card: a step of so many nodes takes a few ms."""


def read_request(desk: SchedulerHarness, namespace: str) -> PodRequest:
    pod = desk.ledger.placement.resolve_pod(replace(ledger_pod("new", units=2), namespace=namespace))
    assert pod.request is not None
    return pod.request


def put_pod(desk: SchedulerHarness, name: str, node: str, namespace: str) -> None:
    record = Record("vrampack", (Share(2, "GPU-0", 0),))
    desk.ledger.update_pod(replace(ledger_pod(name, units=2, node=node, record=record), namespace=namespace))


def test_each_step_under_rules_evaluates_few_nodes_and_the_verb_none() -> None:
    desk = SchedulerHarness({f"n{at:03}": [15] for at in range(NODES)}, rules=RULES)
    for name in desk.names:
        put_pod(desk, f"on-{name}", name, "default")
    while desk.parts.engine_follower.follow_slice():
        pass
    engine, request = desk.parts.engine, read_request(desk, "default")
    preparation, steps = engine.prepare_request(request, "new"), []
    while not engine.is_prepared(request, "new"):
        steps.append(count_calls(next, preparation))
    assert len(steps) == 7  # four for all nodes, four for those with pods of the tenant; the last may be left to a verb
    assert max(steps) < CALLS_PER_NODE * NODES_PER_STEP
    for namespace in ("default", "other"):
        found = read_request(desk, namespace)
        for _ in engine.prepare_request(found, "new"):
            pass
        assert count_calls(engine.filter_nodes, desk.names, found, "new") < 4 * NODES
        assert count_calls(engine.rank_nodes, desk.names, found, "new", 1) < 3 * NODES


async def test_a_call_under_rules_yields_to_other_tasks() -> None:
    desk = SchedulerHarness({f"n{at:03}": [15] for at in range(NODES)})
    for name in desk.names:
        put_pod(desk, f"on-{name}", name, "other")
    await apply_placement(desk.ledger, PlacementSettings(RULES.build_rules()))
    await desk.parts.engine_follower.catch_up()
    turns = TurnCounter()
    answer = desk.parts.timed_verbs.filter.answer_call(desk.encode_call("first"))
    assert not isinstance(answer, VerbResponse)
    assert json.loads((await answer).body)["NodeNames"] == []
    assert turns.stop() > NODES // NODES_PER_STEP
    assert isinstance(desk.parts.timed_verbs.filter.answer_call(desk.encode_call("second")), VerbResponse)


@pytest.mark.parametrize("seed", range(4))
def test_changes_between_two_steps_are_noticed(seed: int) -> None:
    """Nodes and pods change at random while requests are prepared: the answers are those of an engine that never prepared any."""
    chance, names = random.Random(seed), [f"n{at:02}" for at in range(NODES_PER_STEP + 20)]
    desk = SchedulerHarness({name: [4] for name in names}, rules=RULES)
    nominator = Nominator(desk.ledger, PendingPreemptions(desk.ledger, clock=desk.clock))
    requests = [read_request(desk, namespace) for namespace in ("a", "b", "c")]
    for round_ in range(20):
        engine = Engine(nominator, PolicyTuning())
        engine.follow_slice((), len(names))
        for request in requests:
            for step, _ in enumerate(engine.prepare_request(request, "x")):
                for name in chance.sample(names, chance.choice([0, 0, 1, 2])):
                    change_node(desk, chance, name, f"{name}-{round_}-{step}-{request.card_request.units}")
                engine.follow_slice((), chance.choice([1, 100]))
        plain = Engine(nominator, PolicyTuning())
        for request in requests:
            assert engine.filter_nodes(names, request, "x") == plain.filter_nodes(names, request, "x")
            assert engine.rank_nodes(names, request, "x", 9) == plain.rank_nodes(names, request, "x", 9)


def change_node(desk: SchedulerHarness, chance: random.Random, name: str, pod: str) -> None:
    match chance.randrange(5):
        case 0:
            desk.put_node(node_facts(name, chance.choice((4, 8)), 4))
        case 1:
            desk.ledger.remove_node(name)
        case 2:
            for hold in desk.ledger.list_holds(name)[:1]:
                desk.ledger.remove_pod(hold.pod.uid)
        case _:
            put_pod(desk, pod, name, chance.choice("abc"))


def test_more_floors_than_are_kept_may_be_prepared() -> None:
    names = [f"n{at:02}" for at in range(NODES_PER_STEP + 20)]
    desk = SchedulerHarness({name: [16] for name in names}, rules=RULES)
    for priority in range(1, MAX_FLOORS + 3):
        nominee = ledger_pod(f"nominee-{priority}", units=16, priority=priority)
        nominated = replace(nominee, nominated_node=names[priority % len(names)], resource_version="2")
        desk.ledger.update_pod(nominated)
        desk.ledger.update_pod(ledger_pod(f"asks-{priority}", units=4, priority=priority))
    engine, request = desk.parts.engine, read_request(desk, "default")
    preparation = engine.prepare_request(read_request(desk, "other"), "asks-1")
    next(preparation)
    for priority in range(2, MAX_FLOORS + 3):
        engine.filter_nodes(names, request, f"asks-{priority}")
    assert list(preparation)
    plain = Engine(Nominator(desk.ledger, PendingPreemptions(desk.ledger, clock=desk.clock)), PolicyTuning())
    for priority in (1, MAX_FLOORS + 2):
        uid = f"asks-{priority}"
        assert engine.filter_nodes(names, request, uid) == plain.filter_nodes(names, request, uid)
