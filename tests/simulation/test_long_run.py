"""Hours of operation: churn, gated pods, outages, lost watches, relists and refused credentials, and memory stays flat.

`VRAMPACK_SIMULATION_HOURS=24` is what `make soak` runs.
"""

from __future__ import annotations

import gc
import os
import sys
import types
from random import Random
from statistics import mean

import pytest

from extender.metrics import ExtenderMetrics
from tests.simulation.api import SimulatedApi
from tests.simulation.invariants import InvariantChecker
from tests.simulation.loop import SimulatedLoop
from tests.simulation.objects import SHAPES, a_pod
from tests.simulation.operation import Health, OperatedCluster
from tests.simulation.process import SimulatedExtender
from tests.simulation.world import NAMESPACE, draw_settings, simulation_world
from vrampack.kube.errors import NoAnswerError
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import POD, Object

HOURS = float(os.environ.get("VRAMPACK_SIMULATION_HOURS", "0.2"))
TICK_SECONDS = 1.0
CHURN_SECONDS = 5.0
MOST_PODS, MOST_GATED = 14, 20
OUTAGES: tuple[Health, ...] = ("no bindings", "no writes", "no answers", "unauthorized", "throttled")
QUIET_SECONDS = 90.0
"""At the end of each period: then everything must be in order."""
FIRST_FULL_HOUR = 6
"""By then every bounded cache is full."""
MAX_GROWTH = 1.1
NOT_OWNED = (SimulatedApi, SimulatedLoop, ExtenderMetrics, types.ModuleType, type, types.FunctionType)


@pytest.mark.timeout(3600)
def test_hours_of_operation_break_no_promise_and_leak_no_memory() -> None:
    dice = Random(24)
    sizes: list[int] = []
    period = min(3600.0, HOURS * 3600)
    with simulation_world("honest", draw_settings()) as world:
        cluster = OperatedCluster(world, InvariantChecker(world), dice, tick_seconds=TICK_SECONDS)
        for _ in range(max(1, round(HOURS))):
            _operate(cluster, period)
            cluster.judge.check_settled()
            sizes.append(measure_bytes(world.processes["e0"]))
            cluster.forget_the_past()
            sys.stdout.write(f"hour {len(sizes)}: {len(world.pods())} pods, {world.made} made, {sizes[-1]} bytes\n")
    full = sizes[FIRST_FULL_HOUR:]
    if full:
        earlier, later = full[: len(full) // 2], full[len(full) // 2 :]
        assert mean(later) <= MAX_GROWTH * mean(earlier), sizes


def _operate(cluster: OperatedCluster, seconds: float) -> None:
    """One bad thing after another, a third of the time."""
    end = cluster.world.seconds + seconds - QUIET_SECONDS
    while cluster.world.seconds < end:
        _churn(cluster)
        cluster.run(CHURN_SECONDS)
        if cluster.dice.random() < 0.012:
            _lose_watches(cluster)
        if cluster.dice.random() < 0.008:
            cluster.health = cluster.dice.choice(OUTAGES)
            for _ in range(cluster.dice.randrange(1, 60)):
                _churn(cluster)
                cluster.run(CHURN_SECONDS)
            cluster.health = "well"
    cluster.run(QUIET_SECONDS)


def _churn(cluster: OperatedCluster) -> None:
    """A pod comes, one in five with a gate; a gate opens; a pod finishes or is deleted."""
    world, dice = cluster.world, cluster.dice
    gated = [pod for pod in world.pods() if pod["spec"].get("schedulingGates")]
    ungated = [pod for pod in world.pods() if not pod["spec"].get("schedulingGates")]
    made = a_pod(world.new_name(), dice.randrange(SHAPES))
    if dice.random() < 0.2 and len(gated) < MOST_GATED:
        made["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    world.store.create(POD, NAMESPACE, made)
    if gated and dice.random() < 0.15:
        opened: Object = {"spec": {"schedulingGates": []}}
        name = dice.choice(gated)["metadata"]["name"]
        world.store.patch(POD, NAMESPACE, name, opened, apply_patch=apply_merge_patch, is_status=False)
    while len(ungated) >= MOST_PODS:
        gone = ungated.pop(dice.randrange(len(ungated)))["metadata"]["name"]
        if dice.random() < 0.5:
            phase = {"status": {"phase": "Succeeded"}}
            world.store.patch(POD, NAMESPACE, gone, phase, apply_patch=apply_merge_patch, is_status=True)
        world.store.delete(POD, NAMESPACE, gone, {"gracePeriodSeconds": 0})


def _lose_watches(cluster: OperatedCluster) -> None:
    """Cut, or told that their version is gone."""
    for stream in list(cluster.world.network.streams):
        if cluster.dice.random() < 0.5:
            stream.fail(NoAnswerError("cut"))
        else:
            cluster.world.compact()
            stream.send("ERROR", {"code": 410, "reason": "Expired", "message": "too old resource version"})


def measure_bytes(process: SimulatedExtender) -> int:
    """What the extender's parts hold, without the API server's side, the metrics and code."""
    gc.collect()
    seen: set[int] = set()
    waiting: list[object] = [process.ledger, process.parts]
    total = 0
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, NOT_OWNED):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        waiting += gc.get_referents(item)
    return total
