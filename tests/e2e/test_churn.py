"""More pods than there is room for, coming and going: no card is ever over its capacity, and a pod that waits has no place.

10 nodes of 8 cards are asked for 130 % of what they have. `VRAMPACK_CHURN_SECONDS` says for how long pods come and go (6),
`VRAMPACK_SEED` repeats a run. At the end a waiting pod that would fit waits for the scheduler's five-minute flush: nothing
wakes it when room appears (as long as the extender has no kicks). The test counts such pods, and then wakes them itself by
an annotation.
"""

from __future__ import annotations

import itertools
import os
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from tests.auditor.places import find_placeable_pods
from tests.e2e.auditing import assert_never_oversold, wait_until_recounted
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import read_metric
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from tests.support.processes import ManagedProcess

SECONDS = float(os.environ.get("VRAMPACK_CHURN_SECONDS", "6"))
NODES, CARDS, UNITS = 10, 8, 15
OFFERED_UNITS = NODES * CARDS * UNITS * 13 // 10
SIZES = ((2, 1), (3, 1), (4, 1), (5, 1), (7, 1), (8, 1), (10, 1), (12, 1), (15, 1), (8, 2), (20, 2), (24, 4), (60, 4))
"""Units over all cards, cards."""
BACKOFF_SECONDS = 15
"""The scheduler tries a pod again after 10 s at most, if it tries at all before its flush."""
AT_ONCE = {"gracePeriodSeconds": 0}


class Churn:
    """Pods that come and go as `random` says."""

    def __init__(self, cluster: ControlPlane, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._numbers = itertools.count()
        self._units: dict[str, int] = {}

    def fill(self) -> None:
        while sum(self._units.values()) < OFFERED_UNITS:
            self._create_pod()

    def step(self) -> None:
        """One pod goes, wherever it is, and others come in its place."""
        name = self._random.choice(sorted(self._units))
        self._cluster.request_ok("DELETE", f"{PODS}/{name}", AT_ONCE)
        del self._units[name]
        self.fill()

    def _create_pod(self) -> None:
        units, count = self._random.choice(SIZES)
        name = f"p{next(self._numbers)}"
        labels = {"aliyun.com/gpu-count": str(count)} if count > 1 else {}
        self._cluster.request_ok("POST", PODS, pod_manifest(name, units, labels=labels))
        self._units[name] = units


@pytest.mark.timeout(180 + SECONDS * 2)
def test_no_card_is_oversold_and_waiting_pods_fit_nowhere(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    seed = int(os.environ.get("VRAMPACK_SEED", secrets.randbits(32)))
    sys.stdout.write(f"VRAMPACK_SEED={seed} VRAMPACK_CHURN_SECONDS={SECONDS:g}\n")
    for number in range(NODES):
        name = f"gpu-{number:02}"
        cluster.add_node(
            name, cards=cards_annotation(*(published_card(index, uuid=f"{name}-{index}") for index in range(CARDS)))
        )
    ours = extender()
    scheduler()
    churn = Churn(cluster, Random(seed))
    with assert_never_oversold(cluster):
        churn.fill()
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            churn.step()
        waiting = left_waiting(cluster, ours)
    wait_until_recounted(cluster, ours)
    report_churn(cluster, ours, waiting)


def left_waiting(cluster: ControlPlane, ours: ExtenderProgram) -> list[str]:
    """Pods that the scheduler leaves alone although they fit; afterwards none does, by brute force."""
    with suppress(TimeoutError):
        cluster.wait_until(lambda: fitting(ours) == 0, BACKOFF_SECONDS)
    waiting = with_a_place(cluster)
    for name in waiting:
        wake(cluster, name)
    cluster.wait_until(lambda: fitting(ours) == 0, 60, what=lambda: f"bound: {with_a_place(cluster)}")
    assert with_a_place(cluster) == []
    return waiting


def fitting(ours: ExtenderProgram) -> float:
    """What the extender itself says; cheap to ask often."""
    return read_metric(ours, 'vrampack_pending_pods{reason="fits"}')


def with_a_place(cluster: ControlPlane) -> list[str]:
    pods, nodes = (cluster.request_ok("GET", f"/api/v1/{kind}")["items"] for kind in ("pods", "nodes"))
    return [name.partition("/")[2] for name in find_placeable_pods(pods, nodes)]


def wake(cluster: ControlPlane, name: str) -> None:
    patch = {"metadata": {"annotations": {"example.com/woken": "yes"}}}
    cluster.request_ok("PATCH", f"{PODS}/{name}", patch, content_type="application/merge-patch+json")


def report_churn(cluster: ControlPlane, ours: ExtenderProgram, waiting: list[str]) -> None:
    pods = cluster.request_ok("GET", PODS)["items"]
    bound = sum("nodeName" in pod["spec"] for pod in pods)
    done = read_metric(ours, 'vrampack_bind_total{result="ok"}')
    refused = read_metric(ours, 'vrampack_bind_total{result="no_capacity"}')
    sys.stdout.write(
        f"bound {bound}, waiting {len(pods) - bound}; binds {done:.0f}, refused {refused:.0f}"
        f" ({100 * refused / (done + refused):.1f} %); waited for the flush: {len(waiting)} {waiting}\n"
    )
