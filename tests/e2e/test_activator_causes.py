"""Changes that the scheduler does not see, or sees too early, and that may let a waiting pod in: an activation brings it back.

Freed room and healed cards are in `test_activator`. In each case the scheduler is left without a reason of its own, or asks while our
watch still shows the old state.

A change of the policy is a cause as well, but so far no policy refuses a pod that fits, so it cannot turn a no into a
yes. These tests show that a reload reaches the running extender and wakes no pod without need. That it begins a round
which also places the pods that had seen all room again is shown in process, in `tests/extender/test_activator.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.activations import ACTIVATION, count_filter_calls, create_pod, wait_until_bound, wait_until_refused
from tests.e2e.in_cluster import ExtenderProgram, installed_configuration
from tests.e2e.verb_calls import get_inspect, post_bind, read_ledger_states, read_metric
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card, read_allocation_record
from tests.support.processes import LOOPBACK

BINDING = r"/pods/gated/binding$"
NODE = "/api/v1/nodes/gpu-0"

Start = Callable[..., Any]


@pytest.fixture
def running(
    cluster: ControlPlane, extender: Start, scheduler: Start, api_proxy: FaultProxyThread
) -> Iterator[ExtenderProgram]:
    """An extender behind the failing proxy, the real scheduler, and one node of two cards of 15 and 8 units.

    After each test it asserts that no pod got in by the scheduler's flush.
    """
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0), published_card(1, units=8)))
    started = extender(api=(LOOPBACK, api_proxy.port))
    scheduler()
    yield started
    api_proxy.clear()
    assert read_metric(started, "vrampack_bound_after_flush_total") == 0


def test_place_of_a_refused_bind_goes_to_a_waiting_pod(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The API server refuses a Binding of a pod with scheduling gates. No scheduler knows of that bind, so none gets an answer."""
    gated = pod_manifest("gated", 15)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    made = cluster.request_ok("POST", PODS, gated)
    held = api_proxy.when("POST", BINDING).hold()
    with ThreadPoolExecutor(1) as calls:
        answer = calls.submit(post_bind, running, made, "gpu-0")
        cluster.wait_until(
            lambda: read_ledger_states(running) == {"gated on gpu-0/0": "reserved, 15"}, what="the place is reserved"
        )
        waiting = wait_until_refused(cluster, create_pod(cluster, "waiting"))
        held.release()
        assert answer.result().endswith("nothing was bound")
    wait_until_bound(cluster, waiting)
    assert api_proxy.count("PATCH", ACTIVATION) <= 1  # none where the scheduler had a reason of its own to ask again


def test_an_uncordoned_card_is_used(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The other card is too small. The scheduler asks and is refused while our watch still shows the cordon."""
    cordon(cluster, "GPU-0")
    cluster.wait_until(
        lambda: get_inspect(running)["nodes"][0]["devs"][0]["cordoned"], what="the extender knows of the cordon"
    )
    waiting = wait_until_refused(cluster, create_pod(cluster, "waiting"))
    api_proxy.freeze_watches()
    before = count_filter_calls(running)
    cordon(cluster, None)
    cluster.wait_until(lambda: count_filter_calls(running) > before, what="the scheduler asked before our watch knew")
    api_proxy.thaw_watches()
    wait_until_bound(cluster, waiting)
    assert api_proxy.count("PATCH", ACTIVATION) <= 1  # none where the scheduler had a reason of its own to ask again


def test_reloaded_policy_applies_at_once_and_wakes_no_pod_needlessly(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """3 of 15 units are held: binpack goes on on card 1 (5 of 8 left), spread to the emptier card 0."""
    large = wait_until_refused(cluster, create_pod(cluster, "large", units=16))
    first = wait_until_bound(cluster, create_pod(cluster, "first", units=3))
    assert card_of(cluster, first) == 1

    file = running.process.log_path.parent / "config.yaml"
    file.write_text(installed_configuration(cluster, "vrampack-extender") + "\npolicy: {default: spread}\n")
    cluster.wait_until(
        lambda: read_metric(running, "vrampack_config_generation") == 2, what="the new policy is in force"
    )

    second = wait_until_bound(cluster, create_pod(cluster, "second", units=3))
    assert card_of(cluster, second) == 0
    assert "nodeName" not in cluster.request_ok("GET", f"{PODS}/{large}")["spec"]
    assert api_proxy.count("PATCH", ACTIVATION) == 0


def cordon(cluster: ControlPlane, uuid: str | None) -> None:
    patch = {"metadata": {"annotations": {"vrampack.dev/cordoned-cards": uuid}}}
    cluster.request_ok("PATCH", NODE, patch, content_type="application/merge-patch+json")


def card_of(cluster: ControlPlane, name: str) -> int:
    return int(read_allocation_record(cluster.request_ok("GET", f"{PODS}/{name}"))["cards"][0]["index"])
