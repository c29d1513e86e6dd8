"""Many changes at once are taken up slice by slice, and a verb in between finds all of them."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace

import pytest

from extender.policy_settings import PolicyTuning
from extender.scheduling.engine_follower import MIN_CHANGES, EngineFollower
from extender.state.nominator import NODES_PER_SLICE, Nominator
from extender.state.pending_preemptions import PendingPreemptions
from extender.wire.codec import VerbResponse
from policies.engine.engine import Engine
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod, node_facts, pod_request
from tests.support.call_counter import count_calls
from tests.support.turn_counter import TurnCounter

NAMES = [f"n{at:03}" for at in range(10 * NODES_PER_SLICE + 1)]


def count_key_calls(desk: SchedulerHarness) -> int:
    """What the next pod costs before its verdicts are looked up."""
    return count_calls(desk.parts.engine.find_verdict_key, pod_request(), "small")


def nominate_pods(desk: SchedulerHarness) -> None:
    """One to each node, of which it takes the only card."""
    for name in NAMES:
        desk.ledger.update_pod(
            replace(desk.add_pending_pod(f"for-{name}", 15, priority=10), nominated_node=name, resource_version="2")
        )


def test_nodes_are_summarized_before_a_verb_asks() -> None:
    desk = SchedulerHarness({name: [15] for name in NAMES})
    slices = 1
    while desk.parts.engine_follower.follow_slice():
        slices += 1
    assert slices == 21  # each node is summarized, and then put among those that are like it
    assert count_key_calls(desk) < len(NAMES)


def test_cards_of_nominated_pods_are_found_before_a_verb_asks() -> None:
    desk = SchedulerHarness({name: [15] for name in NAMES})
    assert desk.filter_names("small") == NAMES
    nominate_pods(desk)
    while desk.parts.engine_follower.follow_slice():
        pass
    assert count_key_calls(desk) < len(NAMES)
    assert desk.filter_names("small") == []


def test_a_verb_between_two_slices_sees_every_change() -> None:
    desk = SchedulerHarness({name: [15] for name in NAMES})
    desk.filter_names("small")
    nominate_pods(desk)
    assert desk.parts.engine_follower.follow_slice()
    assert desk.filter_names("small") == []
    for name in NAMES:
        desk.put_node(node_facts(name, 15, 15))
    for _ in range(5):
        desk.parts.engine_follower.follow_slice()
    assert desk.filter_names("small") == NAMES


async def test_changes_are_followed_ahead_only_when_there_are_many() -> None:
    """After a few changes, the next verb just takes up the latest state."""
    desk = SchedulerHarness({name: [15] for name in NAMES})
    follower: EngineFollower = desk.parts.engine_follower
    await follower.catch_up()
    runner = asyncio.create_task(follower.run())
    for count, is_followed in ((MIN_CHANGES - 1, False), (1, True)):
        for at in range(count):
            desk.add_bound_pod(f"on-{count}-{at}", NAMES[at if count > 1 else -1], 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (desk.parts.engine.copy_cluster().nodes.get(NAMES[0]) is desk.ledger.get_node(NAMES[0])) == is_followed
    runner.cancel()
    await asyncio.wait([runner])


@pytest.mark.parametrize("seed", range(3))
def test_answers_equal_those_of_an_engine_that_followed_nothing(seed: int) -> None:
    """Nodes, pods and nominations change at random; a slice of one node is taken up now and then."""
    chance, names = random.Random(seed), [f"n{at}" for at in range(6)]
    desk = SchedulerHarness({name: [15] for name in names})
    nominator = Nominator(desk.ledger, PendingPreemptions(desk.ledger, clock=desk.clock))
    engine = Engine(nominator, PolicyTuning())
    for step in range(200):
        name, pod = chance.choice(names), f"p{chance.randrange(8)}"
        match chance.randrange(5):
            case 0:
                desk.put_node(node_facts(name, chance.choice((8, 15)), 15))
            case 1:
                desk.ledger.remove_node(name)
            case 2:
                nominee = ledger_pod(pod, ask=pod_request(9), priority=chance.choice((1, 10)))
                desk.ledger.update_pod(replace(nominee, nominated_node=name))
            case 3:
                desk.ledger.remove_pod(pod)
            case _:
                desk.add_bound_pod(f"on-{step}", name, chance.randrange(1, 5))
        if nominator.follow_slice(1) or engine.follow_slice(nominator.list_floors(), 1):
            engine.follow_slice(nominator.list_floors(), chance.randrange(1, 3))
        if chance.random() < 0.5:
            plain = Engine(Nominator(desk.ledger, PendingPreemptions(desk.ledger, clock=desk.clock)), PolicyTuning())
            for uid in ("ordinary", pod):
                assert engine.filter_nodes(names, pod_request(9), uid) == plain.filter_nodes(names, pod_request(9), uid)


async def test_a_call_after_many_changes_yields_to_other_tasks() -> None:
    desk = SchedulerHarness({name: [15] for name in NAMES})
    await desk.parts.engine_follower.catch_up()
    nominate_pods(desk)
    turns = TurnCounter()
    answer = desk.parts.timed_verbs.filter.answer_call(desk.encode_call("small"))
    assert not isinstance(answer, VerbResponse)
    assert json.loads((await answer).body)["NodeNames"] == []
    assert turns.stop() >= len(NAMES) // NODES_PER_SLICE
    assert isinstance(desk.parts.timed_verbs.filter.answer_call(desk.encode_call("next")), VerbResponse)
