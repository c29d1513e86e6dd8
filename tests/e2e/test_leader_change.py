"""Two pairs of scheduler and extender, as two replicas of the shipped pod: the lead changes under load, nothing is lost.

The lease decides which scheduler works, so one extender is called at a time; the other follows the watch. The first pair
runs the shipped configuration unedited. One machine has one port 12345, so the second one's names another port.
`VRAMPACK_LEADER_CHANGES` says how many changes (2), `VRAMPACK_SEED` repeats a run.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGKILL, SIGSTOP

import pytest

from tests.e2e.auditing import assert_never_oversold, audit_cluster, wait_until_recounted
from tests.e2e.extender_pairs import calling, start_two_extenders
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.stream import PodStream
from tests.e2e.verb_calls import read_metric
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import ControlPlane
from tests.support.processes import LOOPBACK, ManagedProcess

CHANGES = int(os.environ.get("VRAMPACK_LEADER_CHANGES", "2"))
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/vrampack-scheduler"
BINDING = r"/pods/[^/]+/binding$"
TAKEN_OVER_SECONDS = 40
"""A dead leader's lease lasts 15 s; the other one asks for it every 2 s."""


@dataclass(frozen=True, slots=True)
class ExtenderPair:
    """One replica: a scheduler and the extender that it calls."""

    scheduler: ManagedProcess
    extender: ExtenderProgram


@dataclass(frozen=True, slots=True)
class LeaderChangeScene:
    """Two replicas on one cluster under load."""

    cluster: ControlPlane
    api: FaultProxyThread
    stream: PodStream

    def leader(self) -> str:
        """Who holds the lease; empty while it is free."""
        status, lease = self.cluster.request("GET", LEASE)
        return str(lease["spec"].get("holderIdentity") or "") if status < 400 else ""

    def wait_for_another(self, old: str) -> None:
        self.cluster.wait_until(lambda: self.leader() not in {"", old}, TAKEN_OVER_SECONDS, what="the other one leads")


def stopped_in_order(scene: LeaderChangeScene, leading: ExtenderPair) -> None:
    """As a rolling update does it: the lease is given back at once."""
    old = scene.leader()
    scene.stream.create_more(5)
    leading.scheduler.stop()
    assert leading.extender.process.stop() == 0
    scene.wait_for_another(old)


def killed_while_binding(scene: LeaderChangeScene, leading: ExtenderPair) -> None:
    """The Binding was written, and both who knew are dead."""
    old = scene.leader()
    held = scene.api.when("POST", BINDING).hold_reply(times=1)
    scene.stream.create_more(5)
    scene.api.reached(held, within=30)
    leading.scheduler.stop(SIGKILL)
    leading.extender.process.stop(SIGKILL)
    scene.api.clear()
    scene.wait_for_another(old)


def paused_while_binding(scene: LeaderChangeScene, leading: ExtenderPair) -> None:
    """It sleeps with a Binding on its way until another one leads and has placed everything; then both go on."""
    old = scene.leader()
    held = scene.api.when("POST", BINDING).hold(times=1)
    scene.stream.create_more(5)
    scene.api.reached(held, within=30)
    for process in (leading.scheduler, leading.extender.process):
        process.signal(SIGSTOP)
    scene.wait_for_another(old)
    scene.stream.wait_bound()
    scene.api.clear()
    for process in (leading.extender.process, leading.scheduler):
        process.signal(SIGCONT)
    leading.scheduler.wait()  # a scheduler that finds its lease lost ends
    assert leading.extender.process.stop() == 0


HOW = (stopped_in_order, killed_while_binding, paused_while_binding)


@pytest.mark.timeout(90 + 60 * CHANGES)
def test_a_leader_change_under_load_loses_nothing(
    cluster: ControlPlane,
    extender: Callable[..., ExtenderProgram],
    scheduler: Callable[..., ManagedProcess],
    api_proxy: FaultProxyThread,
    transcript: Path,
) -> None:
    seed = int(os.environ.get("VRAMPACK_SEED", secrets.randbits(32)))
    sys.stdout.write(f"VRAMPACK_SEED={seed} VRAMPACK_LEADER_CHANGES={CHANGES}\n")
    scene = LeaderChangeScene(cluster, api_proxy, PodStream(cluster, Random(seed)))
    with (
        start_two_extenders(extender, transcript, api=(LOOPBACK, api_proxy.port)) as extenders,
        assert_never_oversold(cluster),
    ):
        pairs = [ExtenderPair(scheduler(**calling(cluster, each)), each) for each in extenders]
        for number in range(CHANGES):
            leading, following = pairs
            HOW[number % len(HOW)](scene, leading)
            scene.stream.create_more(5)
            scene.stream.wait_bound()
            for pair in pairs:
                assert pair.extender.front
                pair.extender.front.settled()
            assert audit_cluster(cluster, transcript=transcript) == ""
            wait_until_recounted(cluster, following.extender)
            leading.extender.process.start()
            leading.extender.wait_ready()
            leading.scheduler.start()
            wait_until_recounted(cluster, leading.extender)
            pairs = [following, leading]
        assert [read_metric(each, "vrampack_second_extender_total") for each in extenders] == [0, 0]
