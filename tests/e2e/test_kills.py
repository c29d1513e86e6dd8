"""Killed at any moment, under a stream of pods through the real scheduler, nothing is lost and nothing doubled.

`VRAMPACK_KILLS` says how many deaths (6: one of each kind), `VRAMPACK_SEED` repeats a run: every run prints its seed. `make soak` has 300.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.e2e.auditing import assert_never_oversold, audit_cluster, wait_until_recounted
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.kills import KILLS, KillScene, kill_and_start
from tests.e2e.stream import PodStream
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.processes import LOOPBACK, ManagedProcess

DEATHS = int(os.environ.get("VRAMPACK_KILLS", "6"))


@pytest.mark.timeout(90 + 20 * DEATHS)
def test_killing_the_extender_loses_nothing(
    cluster: ControlPlane,
    extender: Callable[..., ExtenderProgram],
    scheduler: Callable[..., ManagedProcess],
    api_proxy: FaultProxyThread,
    transcript: Path,
) -> None:
    seed = int(os.environ.get("VRAMPACK_SEED", secrets.randbits(32)))
    sys.stdout.write(f"VRAMPACK_SEED={seed} VRAMPACK_KILLS={DEATHS}\n")
    random = Random(seed)
    stream = PodStream(cluster, random)
    ours = extender(api=(LOOPBACK, api_proxy.port))
    assert ours.front
    scene = KillScene(ours, ours.front, api_proxy, stream, random)
    scheduler()
    with assert_never_oversold(cluster):
        for deaths in in_batches(DEATHS, random):
            for kill in deaths:
                sys.stdout.write(f"{kill.__name__}\n")
                kill_and_start(scene, kill)
            stream.wait_bound()
            scene.front.settled()
            assert audit_cluster(cluster, transcript=transcript) == ""
            wait_until_recounted(cluster, ours)


def in_batches(count: int, random: Random) -> list[list[Callable[[KillScene], None]]]:
    """So many deaths in all, each kind equally often, in random order."""
    deaths = [KILLS[number % len(KILLS)] for number in range(count)]
    batches = [deaths[at : at + len(KILLS)] for at in range(0, count, len(KILLS))]
    for batch in batches:
        random.shuffle(batch)
    return batches
