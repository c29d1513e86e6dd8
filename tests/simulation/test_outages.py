"""Ten minutes in which the API server binds nobody, or says so: afterwards every unit is accounted for within a minute."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.invariants import InvariantChecker
from tests.simulation.objects import ASKS
from tests.simulation.operation import Health, OperatedCluster, find_pods_with_a_place
from tests.simulation.world import SimulationSettings, draw_settings, simulation_world

OUTAGE_SECONDS, RECOVERY_SECONDS = 600.0, 60.0
PODS = 14
"""They ask for twice what there is."""


@pytest.fixture(scope="module")
def around() -> SimulationSettings:
    return draw_settings()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("health", ["no bindings", "no writes", "no answers"])
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
        cluster.run(OUTAGE_SECONDS)
        cluster.health = "well"
        cluster.run(RECOVERY_SECONDS)
        assert find_pods_with_a_place(cluster) == []
        cluster.judge.check_settled()
