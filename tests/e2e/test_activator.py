"""Capacity that the scheduler saw before us, or that no event reports: a pod that waits for it is bound, and not by the flush.

The extender's watch comes late, as it may: the scheduler asks about the freed room first and is refused.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.activations import ACTIVATION, count_filter_calls, create_pod, wait_until_bound, wait_until_refused
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import read_ledger_states, read_metric
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, published_card
from tests.support.processes import LOOPBACK

ROUNDS = int(os.environ.get("VRAMPACK_KICK_ROUNDS", "10"))
"""Set the variable to 1000 for a figure that means something (20 minutes); ten show whether it works at all."""
LATEST_SECONDS = 2.0
GOAL_SECONDS = 0.3
"""From the moment our watch has it until the pod is bound. The goal is for 99 of 100 on a quiet machine, and printed; what
is asserted must hold on a busy one too."""
LONGEST_SECONDS = 4.0
"""Far from the flush, and less than it takes until a kick counts as in vain."""
BINDING = r"/binding$"

Start = Callable[..., Any]


@pytest.fixture
def running(
    cluster: ControlPlane, extender: Start, scheduler: Start, api_proxy: FaultProxyThread
) -> Iterator[ExtenderProgram]:
    """An extender behind the failing proxy, the real scheduler, and one node of one card of 15 units."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)))
    started = extender(api=(LOOPBACK, api_proxy.port))
    scheduler()
    yield started
    api_proxy.clear()


@pytest.mark.timeout(120 + 5 * ROUNDS)
def test_freed_room_is_used_as_soon_as_a_late_watch_shows_it(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    chance = random.Random(4)
    took: list[float] = []
    held = wait_until_bound(cluster, create_pod(cluster, "p0"))
    for number in range(1, ROUNDS + 1):
        waiting = wait_until_refused(cluster, create_pod(cluster, f"p{number}"))
        took.append(seconds_to_follow(cluster, running, api_proxy, held, waiting, chance.uniform(0, LATEST_SECONDS)))
        held = waiting

    took.sort()
    kicked = api_proxy.count("PATCH", ACTIVATION)
    p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
    sys.stdout.write(
        f"kicks rounds={ROUNDS} p50={took[len(took) // 2] * 1000:.0f}ms p99={p99 * 1000:.0f}ms kicks={kicked}\n"
    )
    assert took[len(took) // 2] <= GOAL_SECONDS
    assert took[-1] <= LONGEST_SECONDS
    assert ROUNDS // 2 <= kicked <= ROUNDS + 1
    assert read_metric(running, "vrampack_bound_after_flush_total") == 0


def test_deleting_a_pod_whose_binding_was_lost_lets_the_next_pod_bind(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The Binding is lost, so its place is held; to the scheduler, deleting a pod without a node makes no room."""
    lost = api_proxy.when("POST", BINDING).cut()
    create_pod(cluster, "first")
    cluster.wait_until(
        lambda: read_ledger_states(running) == {"first on gpu-0/0": "unconfirmed, 15"}, what="the place is held"
    )
    waiting = wait_until_refused(cluster, create_pod(cluster, "second"))
    lost.stop()
    delete(cluster, "first")
    wait_until_bound(cluster, waiting)
    assert api_proxy.count("PATCH", ACTIVATION) <= 1  # none where the scheduler had a reason of its own to ask again
    assert read_metric(running, "vrampack_bound_after_flush_total") == 0


def test_a_healed_card_is_used(cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread) -> None:
    """The node's annotation wakes the pod; it is asked about while our watch still shows the sick card."""
    publish(cluster, published_card(0, healthy=False))
    cluster.wait_until(lambda: read_metric(running, 'vrampack_pending_pods{reason="fits"}') == 0)
    waiting = wait_until_refused(cluster, create_pod(cluster, "a"))
    api_proxy.freeze_watches()
    before = count_filter_calls(running)
    publish(cluster, published_card(0))
    cluster.wait_until(lambda: count_filter_calls(running) > before, what="the scheduler asked before our watch knew")
    api_proxy.thaw_watches()
    wait_until_bound(cluster, waiting)
    assert api_proxy.count("PATCH", ACTIVATION) <= 1  # none where the scheduler had a reason of its own to ask again
    assert read_metric(running, "vrampack_bound_after_flush_total") == 0


def seconds_to_follow(
    cluster: ControlPlane,
    running: ExtenderProgram,
    api_proxy: FaultProxyThread,
    held: str,
    waiting: str,
    late_seconds: float,
) -> float:
    """`held` is deleted while the watch is silent; returns how long after it speaks `waiting` is bound."""
    cluster.wait_until(lambda: f"{held} on gpu-0/0" in read_ledger_states(running), what="the watch is on time again")
    api_proxy.freeze_watches()
    before = count_filter_calls(running)
    delete(cluster, held)
    cluster.wait_until(lambda: count_filter_calls(running) > before, what="the scheduler asked before our watch knew")
    due = time.monotonic() + late_seconds
    cluster.wait_until(lambda: time.monotonic() > due, what="the watch is as late as it shall be")
    api_proxy.thaw_watches()
    started = time.monotonic()
    wait_until_bound(cluster, waiting)
    return time.monotonic() - started


def delete(cluster: ControlPlane, name: str) -> None:
    cluster.request_ok("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def publish(cluster: ControlPlane, card: dict[str, object]) -> None:
    patch = {"metadata": {"annotations": {"vrampack.dev/cards": cards_annotation(card)}}}
    cluster.request_ok("PATCH", "/api/v1/nodes/gpu-0", patch, content_type="application/merge-patch+json")
