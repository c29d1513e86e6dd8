"""Causes of which the scheduler hears nothing, or too early, and which may let a waiting pod in: a kick brings it back.

Freed room and healed cards are in `test_kicks`. In each the scheduler is left without a reason of its own, or asks while our
watch still shows the old state.

A change of the policy is a cause as well, but no policy refuses a pod that fits yet: it cannot turn a no into a yes. What
is shown here is that a reload reaches the running extender and wakes nobody without need. That it begins a round, in
which those are laid again who had seen all room, is shown in process, in `tests/extender/test_kicks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.in_cluster import Extender, installed_configuration
from tests.e2e.objects import PODS, a_card, a_pod, allocation, cards
from tests.e2e.processes import LOOPBACK
from tests.e2e.test_kicks import KICK, asked, bound, created, refused
from tests.e2e.verb_calls import bind, inspect, metric, states
from tests.fakes.proxy_thread import ProxyThread

BINDING = r"/pods/gated/binding$"
NODE = "/api/v1/nodes/gpu-0"

Start = Callable[..., Any]


@pytest.fixture
def ours(cluster: Cluster, extender: Start, scheduler: Start, api_proxy: ProxyThread) -> Iterator[Extender]:
    """An extender behind the failing proxy, the real scheduler, and one node of two cards of 15 and 8 units.

    Whatever happens in a test, nobody is let in by the scheduler's flush.
    """
    cluster.add_node("gpu-0", cards=cards(a_card(0), a_card(1, units=8)))
    started = extender(api=(LOOPBACK, api_proxy.port))
    scheduler()
    yield started
    api_proxy.clear()
    assert metric(started, "vrampack_bound_after_flush_total") == 0


def test_the_place_of_a_refused_bind_is_used(cluster: Cluster, ours: Extender, api_proxy: ProxyThread) -> None:
    """The API server refuses a Binding of a pod with scheduling gates. No scheduler knows of that bind, so none hears of it."""
    gated = a_pod("gated", 15)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    made = cluster.must("POST", PODS, gated)
    held = api_proxy.when("POST", BINDING).hold()
    with ThreadPoolExecutor(1) as calls:
        answer = calls.submit(bind, ours, made, "gpu-0")
        cluster.wait(lambda: states(ours) == {"gated on gpu-0/0": "reserved, 15"}, what="the place is reserved")
        waiting = refused(cluster, created(cluster, "waiting"))
        held.release()
        assert answer.result().endswith("nothing was bound")
    bound(cluster, waiting)
    assert api_proxy.count("PATCH", KICK) <= 1  # none where the scheduler had a reason of its own to ask again


def test_an_uncordoned_card_is_used(cluster: Cluster, ours: Extender, api_proxy: ProxyThread) -> None:
    """The other card is too small. The scheduler asks and is refused while our watch still shows the cordon."""
    cordon(cluster, "GPU-0")
    cluster.wait(lambda: inspect(ours)["nodes"][0]["devs"][0]["cordoned"], what="the extender knows of the cordon")
    waiting = refused(cluster, created(cluster, "waiting"))
    api_proxy.freeze_watches()
    before = asked(ours)
    cordon(cluster, None)
    cluster.wait(lambda: asked(ours) > before, what="the scheduler asked before our watch knew")
    api_proxy.thaw_watches()
    bound(cluster, waiting)
    assert api_proxy.count("PATCH", KICK) <= 1  # none where the scheduler had a reason of its own to ask again


def test_another_policy_is_in_force_at_once_and_wakes_nobody_without_need(
    cluster: Cluster, ours: Extender, api_proxy: ProxyThread
) -> None:
    """3 of 15 units are held: binpack goes on on card 1 (5 of 8 left), spread to the emptier card 0."""
    large = refused(cluster, created(cluster, "large", units=16))
    first = bound(cluster, created(cluster, "first", units=3))
    assert card_of(cluster, first) == 1

    file = ours.process.log_path.parent / "config.yaml"
    file.write_text(installed_configuration(cluster, "vrampack-extender") + "\npolicy: {default: spread}\n")
    cluster.wait(lambda: metric(ours, "vrampack_config_generation") == 2, what="the new policy is in force")

    second = bound(cluster, created(cluster, "second", units=3))
    assert card_of(cluster, second) == 0
    assert "nodeName" not in cluster.must("GET", f"{PODS}/{large}")["spec"]
    assert api_proxy.count("PATCH", KICK) == 0


def cordon(cluster: Cluster, uuid: str | None) -> None:
    patch = {"metadata": {"annotations": {"vrampack.dev/cordoned-cards": uuid}}}
    cluster.must("PATCH", NODE, patch, content_type="application/merge-patch+json")


def card_of(cluster: Cluster, name: str) -> int:
    return int(allocation(cluster.must("GET", f"{PODS}/{name}"))["cards"][0]["index"])
