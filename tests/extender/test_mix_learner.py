"""The forecast of policies that look ahead is learned from the pods that the watch shows."""

from __future__ import annotations

import asyncio

from extender.policy_settings import PolicyTuning
from extender.scheduling.mix_learner import MixLearner
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from policies.engine.engine import Engine
from policies.mix.request_mix import FIRST_FORECAST
from tests.support.builders import ledger_pod, node_facts, pod_request
from vrampack.cards.tuned_policy import TunedPolicy

NODES = ["opened", "whole"]


class LearningCluster:
    """Two nodes of one card with 15 units, one with 8 of them in use; requests are for 5 or 7."""

    def __init__(self, policy: str) -> None:
        self.ledger = Ledger(unit_mib=1024, clock=lambda: 0.0)
        nominator = Nominator(self.ledger, PendingPreemptions(self.ledger, clock=lambda: 0.0))
        self.engine = Engine(nominator, PolicyTuning(default=policy))
        self.learner = MixLearner(self.ledger, self.engine)
        for name in NODES:
            self.ledger.update_node(node_facts(name, 15))
        self.engine.filter_nodes(NODES, pod_request(5), "asks")

    def add_pods(self, units: int, count: int) -> None:
        for number in range(count):
            pod = ledger_pod(f"{units}-{number}", units=units)
            self.ledger.update_pod(pod)
            self.learner.on_pod_added(pod.uid)

    def value_four_units(self) -> float | None:
        values = self.engine.get_outlook(TunedPolicy("tessellate"), None).forecast.piece_values.get(15)
        return None if values is None else values.value_units(4)


async def run_for_a_while(learner: MixLearner) -> asyncio.Task[None]:
    running = asyncio.create_task(learner.run())
    for _ in range(50):
        await asyncio.sleep(0)
    return running


async def test_the_forecast_learns_from_the_first_list_and_from_later_pods() -> None:
    """Where all request 5, a piece of 4 is worth nothing; where just as many request 4, it is worth something."""
    cluster = LearningCluster("tessellate")
    cluster.add_pods(5, FIRST_FORECAST)
    assert cluster.value_four_units() is None
    running = await run_for_a_while(cluster.learner)
    assert cluster.value_four_units() == 0
    cluster.add_pods(4, FIRST_FORECAST)
    for _ in range(50):
        await asyncio.sleep(0)
    assert cluster.value_four_units() != 0
    running.cancel()


async def test_no_forecast_is_computed_where_no_policy_looks_ahead() -> None:
    cluster = LearningCluster("binpack")
    cluster.add_pods(5, FIRST_FORECAST)
    running = await run_for_a_while(cluster.learner)
    assert cluster.value_four_units() is None
    running.cancel()
