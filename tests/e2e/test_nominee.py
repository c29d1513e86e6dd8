"""A preemptor gets the card that its victims left, whichever other pod wants it and whatever arrives late.

Each node has one card full of victims and two that have 3 of 15 units free. So 6 units of the node's sum are free, and
the scheduler lets one of the small pods of 4 to 6 units pass by its sums: which card that would be, only the extender knows.

There is no kubelet. Victims without a grace period are gone as soon as the scheduler deletes them; the others when the test,
in kubelet's place, deletes them for good. Late in some trials: the extender's watch, the kubelet, and the scheduler's word
that the preemptor is nominated, which may come after its victims are gone.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from tests.e2e.auditing import assert_never_oversold, wait_until_recounted
from tests.e2e.in_cluster import ExtenderProgram
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card, read_allocation_record
from tests.support.processes import LOOPBACK

TRIALS = int(os.environ.get("VRAMPACK_NOMINEE_TRIALS", "8"))
"""200 for a figure that means something (6 minutes)."""
LANES = 4
"""Nodes on which the same small pods race at once: as many trials are one round."""
SMALL = 50
PRIORITIES = {"least": 1, "victim": 10, "between": 100, "urgent": 1000, "staying": 2000}
RACING = ("least", "victim", "between", "urgent")
"""Of these are the small pods: none is above the preemptor."""
FILLINGS = ((15,), (8, 7), (5, 5, 5), (11, 4))
LATE_SECONDS = 0.5
KUBELET_SECONDS = 0.3
LANDS_SECONDS = 30
"""The scheduler tries it again after 1 s, and after 2 s if that came too early."""
OUR_POD_WATCH = r"/pods\?.*watch"
AT_ONCE = {"gracePeriodSeconds": 0}

Start = Callable[..., Any]


@dataclass(slots=True)
class Lane:
    """One trial: a node, the pods that are evicted there, and the pod that takes their place."""

    node: str
    filling: tuple[int, ...]
    grace_seconds: int
    """0: a deleted victim is gone at once."""
    units: int
    nominated_late_seconds: float
    kubelet_seconds: float
    """How long the node's kubelet takes to stop a victim that has a grace period."""
    card: int = -1
    dies_at: dict[str, float] = field(default_factory=dict)

    @property
    def preemptor(self) -> str:
        return f"preemptor-{self.node}"


class Race:
    """Rounds of `LANES` trials."""

    def __init__(
        self, cluster: ControlPlane, ours: FaultProxyThread, scheduler: FaultProxyThread, random: Random
    ) -> None:
        self._cluster = cluster
        self._ours = ours
        self._scheduler = scheduler
        self._random = random
        self.took: list[float] = []
        """Seconds from the preemptor's creation until it is bound."""
        self.nominated_late = 0

    def run(self, number: int) -> None:
        """One round, from full cards to preemptors that have landed, and everything away again."""
        lanes = [self._lane(f"gpu-{number}-{at}") for at in range(LANES)]
        for lane in lanes:
            self._fill(lane)
        smalls = [self._a_small(f"small-{number}-{at}") for at in range(SMALL)]
        self._create(*smalls[: SMALL // 2])
        late = self._random.choice((0, self._random.uniform(0, LATE_SECONDS)))
        words = [
            self._scheduler.when("PATCH", rf"/pods/{lane.preemptor}/status").delay(lane.nominated_late_seconds, times=1)
            for lane in lanes
            if lane.nominated_late_seconds
        ]
        if late:
            self._ours.freeze_watches(OUR_POD_WATCH)
        thaws_at = time.monotonic() + late
        rest = [*smalls[SMALL // 2 :], *(a_ranked(lane.preemptor, lane.units, "urgent", lane.node) for lane in lanes)]
        self._random.shuffle(rest)
        started = time.monotonic()
        self._create(*rest)
        self._race(lanes, started, thaws_at)
        self._scheduler.clear()
        self.nominated_late += sum(rule.hits for rule in words)
        self._delete_pods_and_nodes(lanes)

    def _lane(self, node: str) -> Lane:
        chance = self._random
        return Lane(
            node,
            filling=chance.choice(FILLINGS),
            grace_seconds=chance.choice((0, 30)),
            units=chance.randint(12, 15),
            nominated_late_seconds=chance.choice((0, chance.uniform(0, LATE_SECONDS))),
            kubelet_seconds=chance.choice((0, chance.uniform(0, KUBELET_SECONDS))),
        )

    def _fill(self, lane: Lane) -> None:
        self._cluster.add_node(
            lane.node, cards=cards_annotation(*(published_card(at, uuid=f"{lane.node}-{at}") for at in range(3)))
        )
        for at in range(2):
            self._create(a_ranked(f"staying-{lane.node}-{at}", 12, "staying", lane.node))
        for name in (f"staying-{lane.node}-{at}" for at in range(2)):
            self._bound(name)
        victims = [
            a_ranked(f"victim-{lane.node}-{at}", units, "victim", lane.node) for at, units in enumerate(lane.filling)
        ]
        for victim in victims:
            victim["spec"]["terminationGracePeriodSeconds"] = lane.grace_seconds
        self._create(*victims)
        indices = {
            read_allocation_record(self._bound(each["metadata"]["name"]))["cards"][0]["index"] for each in victims
        }
        (lane.card,) = indices

    def _a_small(self, name: str) -> dict[str, Any]:
        return a_ranked(name, self._random.randint(4, 6), self._random.choice(RACING))

    def _race(self, lanes: list[Lane], started: float, thaws_at: float) -> None:
        """Be the kubelets until every preemptor is bound."""
        racing = {lane.preemptor: lane for lane in lanes}

        def is_over() -> bool:
            if time.monotonic() >= thaws_at:
                self._ours.thaw_watches()
            pods = {pod["metadata"]["name"]: pod for pod in self._cluster.request_ok("GET", PODS)["items"]}
            self._stop_containers(lanes, pods)
            for name in [name for name in racing if "nodeName" in pods[name]["spec"]]:
                assert read_allocation_record(pods[name])["cards"][0]["index"] == racing.pop(name).card
                self.took.append(time.monotonic() - started)
            faster = [name for name, pod in pods.items() if "small" in name and "nodeName" in pod["spec"]]
            assert not faster, f"{faster} took the room of {sorted(racing)}"
            return not racing

        self._cluster.wait_until(is_over, LANDS_SECONDS, what=lambda: f"bound: {self._shown(racing)}")

    def _stop_containers(self, lanes: list[Lane], pods: dict[str, Any]) -> None:
        now = time.monotonic()
        for lane in lanes:
            for name, pod in pods.items():
                if not name.startswith(f"victim-{lane.node}-") or "deletionTimestamp" not in pod["metadata"]:
                    continue
                if now >= lane.dies_at.setdefault(name, now + lane.kubelet_seconds):
                    self._cluster.request("DELETE", f"{PODS}/{name}", AT_ONCE)

    def _delete_pods_and_nodes(self, lanes: list[Lane]) -> None:
        """The small pods first: nothing may be free while they are there."""
        self._cluster.request_ok("DELETE", f"{PODS}?labelSelector=role%3Dsmall", AT_ONCE)
        self._cluster.request_ok("DELETE", PODS, AT_ONCE)
        self._cluster.wait_until(lambda: not self._cluster.request_ok("GET", PODS)["items"], what="no pod is left")
        for lane in lanes:
            self._cluster.request_ok("DELETE", f"/api/v1/nodes/{lane.node}")

    def _create(self, *pods: dict[str, Any]) -> None:
        for pod in pods:
            self._cluster.request_ok("POST", PODS, pod)

    def _bound(self, name: str) -> Any:  # noqa: ANN401 - the pod as the API server holds it
        def read_state() -> Any:  # noqa: ANN401 - as above
            pod = self._cluster.request_ok("GET", f"{PODS}/{name}")
            return pod if "nodeName" in pod["spec"] else None

        return self._cluster.wait_until(read_state, what=f"{name} is bound")

    def _shown(self, racing: dict[str, Lane]) -> str:
        pods = [self._cluster.request_ok("GET", f"{PODS}/{name}") for name in racing]
        return "\n".join(f"{racing[pod['metadata']['name']]}: {pod['status']}" for pod in pods)


def a_ranked(name: str, units: int, priority: str, node: str = "") -> dict[str, Any]:
    pod = pod_manifest(name, units, labels={"role": name.partition("-")[0]})
    pod["spec"]["priorityClassName"] = priority
    if node:
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod


@pytest.fixture
def race(
    cluster: ControlPlane,
    extender: Start,
    scheduler: Start,
    api_proxy: FaultProxyThread,
    scheduler_proxy: FaultProxyThread,
) -> Iterator[tuple[Race, ExtenderProgram]]:
    for name, value in PRIORITIES.items():
        cluster.add_priority_class(name, value)
    ours = extender(api=(LOOPBACK, api_proxy.port))
    scheduler(api=(LOOPBACK, scheduler_proxy.port))
    seed = int(os.environ.get("VRAMPACK_SEED", secrets.randbits(32)))
    sys.stdout.write(f"VRAMPACK_SEED={seed} VRAMPACK_NOMINEE_TRIALS={TRIALS}\n")
    yield Race(cluster, api_proxy, scheduler_proxy, Random(seed)), ours
    api_proxy.clear()
    scheduler_proxy.clear()


@pytest.mark.timeout(180 + 10 * TRIALS)
def test_a_preemptor_lands_on_the_card_that_was_freed_for_it(
    cluster: ControlPlane, race: tuple[Race, ExtenderProgram]
) -> None:
    racing, ours = race
    with assert_never_oversold(cluster):
        for number in range(-(-TRIALS // LANES)):
            racing.run(number)
    took = sorted(racing.took)
    sys.stdout.write(
        f"nominees landed={len(took)} nominated_late={racing.nominated_late}"
        f" p50={took[len(took) // 2]:.1f}s longest={took[-1]:.1f}s\n"
    )
    wait_until_recounted(cluster, ours)
    assert len(took) >= TRIALS
    assert racing.nominated_late > 0
