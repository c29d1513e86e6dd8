"""Ten minutes in which the API server binds no pod, or says so: afterwards every unit is accounted for within a minute.

`VRAMPACK_SIMULATION_OUTAGES=3` runs three outages of each kind; `make soak` does.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.simulation.invariants import InvariantChecker
from tests.simulation.objects import ASKS, NODES
from tests.simulation.operation import Health, OperatedCluster, find_pods_with_a_place
from tests.simulation.world import NAMESPACE, SimulationSettings, draw_settings, simulation_world
from vrampack.simulator.resource_kinds import POD

OUTAGE_SECONDS, RECOVERY_SECONDS = 600.0, 60.0
CHURN_SECONDS = 6.0
"""So often a pod goes and another comes."""
PODS = 14
"""They ask for twice what there is."""
SEEDS = int(os.environ.get("VRAMPACK_SIMULATION_OUTAGES", "1"))


@pytest.fixture(scope="module")
def around() -> SimulationSettings:
    return draw_settings()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("health", ["no bindings", "no writes", "no answers", "throttled"])
def test_after_an_outage_every_unit_is_accounted_for(health: Health, seed: int, around: SimulationSettings) -> None:
    """Half of the Bindings that were answered with an error land all the same, up to 20 s later.

    While it lasts, no card is over-committed at any second; see `InvariantChecker.check_step`.
    """
    dice = Random(seed)
    with simulation_world("honest", around) as world:
        cluster = OperatedCluster(world, InvariantChecker(world), dice)
        cluster.run(5)
        cluster.health = health
        for _ in range(PODS):
            world.create_pod(world.new_name(), dice.randrange(len(ASKS)))
        for _ in range(int(OUTAGE_SECONDS / CHURN_SECONDS)):
            cluster.run(CHURN_SECONDS)
            gone = dice.choice(world.pods())["metadata"]["name"]
            world.store.delete(POD, NAMESPACE, gone, {"gracePeriodSeconds": 0})
            world.create_pod(world.new_name(), dice.randrange(len(ASKS)))
        cluster.run(CHURN_SECONDS / 2)
        cluster.health = "well"
        world.cordoned.update(NODES)
        cluster.run(RECOVERY_SECONDS)
        assert find_pods_with_a_place(cluster) == []
        world.cordoned.clear()
        cluster.run(RECOVERY_SECONDS)
        cluster.judge.check_settled()
