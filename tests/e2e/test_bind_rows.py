"""Bind, row by row: what the extender answers, what it writes and what it holds, on the real API server.

A proxy stands before the API server and loses, delays or answers calls; no scheduler runs, the test calls bind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest

from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import count_pending_pods, get_inspect, post_bind, read_ledger_states, read_metric
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card, read_allocation_record
from tests.support.processes import LOOPBACK

BINDING = r"^/api/v1/namespaces/default/pods/[^/]+/binding$"
ETCD_BYTES = 1_572_864
"""What etcd takes in one request, unless it is told otherwise."""
POD = r"^/api/v1/namespaces/default/pods/[^/?]+$"


@pytest.fixture
def running(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread
) -> Iterator[ExtenderProgram]:
    """An extender behind the failing proxy, and two nodes of one card of 15 units each."""
    for name in ("gpu-0", "gpu-1"):
        cluster.add_node(name, cards=cards_annotation(published_card(0, uuid=f"GPU-of-{name}")))
    started = extender(api=(LOOPBACK, api_proxy.port))
    yield started
    api_proxy.clear()


def create_seen_pod(cluster: ControlPlane, running: ExtenderProgram, name: str = "a", units: int = 4) -> Any:  # noqa: ANN401 - the pod as the API server holds it
    """A new pod that the extender has seen."""
    before = count_pending_pods(running)
    pod = cluster.request_ok("POST", PODS, pod_manifest(name, units))
    cluster.wait_until(lambda: count_pending_pods(running) == before + 1, what="the extender saw the pod")
    return pod


def create_largest_pod(cluster: ControlPlane) -> Any:  # noqa: ANN401 - the pod as the API server holds it
    """A pod that etcd just accepts: with 300 bytes more it would not."""
    body = pod_manifest("a", 4)
    for size in range(ETCD_BYTES, 0, -300):
        body["spec"]["containers"][0]["env"] = [{"name": "LARGE", "value": "x" * size}]
        status, answer = cluster.request("POST", PODS, body)
        if status == HTTPStatus.CREATED:
            return answer
        assert "request is too large" in answer["message"]
    raise AssertionError("etcd takes no pod")


def get_pod(cluster: ControlPlane, name: str = "a") -> Any:  # noqa: ANN401 - the pod as the API server holds it
    return cluster.request_ok("GET", f"{PODS}/{name}")


def test_a_bind_is_one_api_call(cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread) -> None:
    pod = create_seen_pod(cluster, running)

    assert post_bind(running, pod, "gpu-0") == ""

    assert get_pod(cluster)["spec"]["nodeName"] == "gpu-0"
    assert read_allocation_record(get_pod(cluster))["cards"] == [
        {"uuid": "GPU-of-gpu-0", "index": 0, "units": 4, "of": 15, "whole": False}
    ]
    assert api_proxy.count("POST", BINDING) == 1
    assert api_proxy.count("GET", POD) == 0
    assert api_proxy.count("PATCH", ".") + api_proxy.count("PUT", ".") + api_proxy.count("DELETE", ".") == 0
    cluster.wait_until(
        lambda: read_ledger_states(running) == {"a on gpu-0/0": "bound, 4"}, what="the watch confirms it"
    )


def test_a_refused_binding_gives_its_place_back(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    pod = create_seen_pod(cluster, running, units=15)
    api_proxy.when("POST", BINDING).answer(422, times=1)

    answer = post_bind(running, pod, "gpu-0")

    assert "422" in answer
    assert "nothing was bound" in answer
    assert read_ledger_states(running) == {}
    assert post_bind(running, pod, "gpu-0") == ""


def test_a_throttled_binding_is_a_definite_no(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    pod = create_seen_pod(cluster, running)
    api_proxy.when("POST", BINDING).answer(429, headers={"Retry-After": "1"}, times=1)

    assert "429" in post_bind(running, pod, "gpu-0")

    assert read_ledger_states(running) == {}
    assert "nodeName" not in get_pod(cluster)["spec"]


def test_a_full_card_is_refused_without_asking_the_api(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    first, second = create_seen_pod(cluster, running, "a", 12), create_seen_pod(cluster, running, "b", 4)
    assert post_bind(running, first, "gpu-0") == ""

    answer = post_bind(running, second, "gpu-0")

    assert answer == "node gpu-0: no card with enough free memory; nothing was bound"
    assert api_proxy.count("POST", BINDING) == 1
    assert read_metric(running, 'vrampack_bind_total{result="no_capacity"}') == 1
    assert read_metric(running, "vrampack_bind_conflicts_total") == 1


def test_bind_of_a_deleted_pod_is_refused(cluster: ControlPlane, running: ExtenderProgram) -> None:
    pod = create_seen_pod(cluster, running)
    cluster.request_ok("DELETE", f"{PODS}/a")
    cluster.wait_until(lambda: count_pending_pods(running) == 0, what="the extender saw the pod go")

    assert post_bind(running, pod, "gpu-0") == "pod default/a does not exist; nothing was bound"

    assert read_ledger_states(running) == {}


def test_bind_of_a_pod_deleted_unseen_is_refused(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The ledger still knows it; the uid in the Binding lets the API server refuse."""
    pod = create_seen_pod(cluster, running)
    api_proxy.freeze_watches()
    cluster.request_ok("DELETE", f"{PODS}/a")

    assert "nothing was bound" in post_bind(running, pod, "gpu-0")

    assert read_ledger_states(running) == {}
    api_proxy.thaw_watches()


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
def test_a_recreated_pod_is_not_bound_by_the_call_for_its_predecessor(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread, *, seen: bool
) -> None:
    old = create_seen_pod(cluster, running)
    if not seen:
        api_proxy.freeze_watches()
    cluster.request_ok("DELETE", f"{PODS}/a")
    new = cluster.request_ok("POST", PODS, pod_manifest("a", 4))
    if seen:
        cluster.wait_until(lambda: count_pending_pods(running) == 1, what="the extender saw the new pod")

    answer = post_bind(running, old, "gpu-0")

    assert "nothing was bound" in answer
    assert get_pod(cluster)["metadata"]["uid"] == new["metadata"]["uid"]
    assert "nodeName" not in get_pod(cluster)["spec"]
    assert read_ledger_states(running) == {}
    assert read_metric(running, 'vrampack_bind_total{result="uid_mismatch"}') == 1
    api_proxy.thaw_watches()


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
def test_repeating_our_own_bind_to_this_node_succeeds(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread, *, seen: bool
) -> None:
    pod = create_seen_pod(cluster, running)
    if not seen:
        api_proxy.freeze_watches()
    assert post_bind(running, pod, "gpu-0") == ""
    if seen:
        cluster.wait_until(
            lambda: read_ledger_states(running) == {"a on gpu-0/0": "bound, 4"}, what="the watch confirms it"
        )
    record = get_pod(cluster)["metadata"]["annotations"]

    assert post_bind(running, pod, "gpu-0") == ""

    assert get_pod(cluster)["metadata"]["annotations"] == record
    assert list(read_ledger_states(running)) == ["a on gpu-0/0"]
    assert api_proxy.count("POST", BINDING) == 1
    api_proxy.thaw_watches()


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
def test_a_pod_that_is_bound_to_another_node_is_refused(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread, *, seen: bool
) -> None:
    pod = create_seen_pod(cluster, running)
    if not seen:
        api_proxy.freeze_watches()
    assert post_bind(running, pod, "gpu-0") == ""
    if seen:
        cluster.wait_until(
            lambda: read_ledger_states(running) == {"a on gpu-0/0": "bound, 4"}, what="the watch confirms it"
        )

    answer = post_bind(running, pod, "gpu-1")

    assert answer == "pod default/a is already bound to node gpu-0; nothing was bound"
    assert list(read_ledger_states(running)) == ["a on gpu-0/0"]
    assert get_pod(cluster)["spec"]["nodeName"] == "gpu-0"
    api_proxy.thaw_watches()


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
def test_a_pod_bound_by_another_scheduler_is_a_conflict(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread, *, seen: bool
) -> None:
    """Bound without a record it counts on every card of its node, and no bind of ours pretends otherwise."""
    pod = create_seen_pod(cluster, running)
    if not seen:
        api_proxy.freeze_watches()
    cluster.request_ok(
        "POST", f"{PODS}/a/binding", {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "gpu-0"}}
    )
    if seen:
        cluster.wait_until(lambda: read_ledger_states(running), what="the extender saw the binding")

    answer = post_bind(running, pod, "gpu-0")

    assert answer == "pod default/a is already bound to node gpu-0 by another program; nothing was bound"
    assert read_ledger_states(running) == {"a on gpu-0/0": "bound, 4"}
    api_proxy.thaw_watches()


def test_a_node_that_vanished_gets_no_binding(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The API server would accept it and bind the pod to nothing."""
    pod = create_seen_pod(cluster, running)
    cluster.request_ok("DELETE", "/api/v1/nodes/gpu-1")
    cluster.wait_until(
        lambda: [node["name"] for node in get_inspect(running)["nodes"]] == ["gpu-0"], what="the extender saw it go"
    )

    assert post_bind(running, pod, "gpu-1") == "node gpu-1 does not exist; nothing was bound"

    assert api_proxy.count("POST", BINDING) == 0
    assert "nodeName" not in get_pod(cluster)["spec"]


def test_lost_binding_reply_is_resolved_by_reading_the_pod(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The Binding was written and its reply lost: the pod itself shows it within the same call."""
    pod = create_seen_pod(cluster, running)
    api_proxy.freeze_watches()
    api_proxy.when("POST", BINDING).cut_after_write(times=1)

    assert post_bind(running, pod, "gpu-0") == ""

    assert get_pod(cluster)["spec"]["nodeName"] == "gpu-0"
    assert (api_proxy.count("POST", BINDING), api_proxy.count("GET", POD)) == (1, 1)
    assert read_ledger_states(running) == {"a on gpu-0/0": "bound, 4"}
    api_proxy.thaw_watches()


def test_cut_connection_keeps_the_place_and_the_next_bind_posts_the_same_cards(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The first Binding may still land; if it does, it must be the same."""
    pod = create_seen_pod(cluster, running, units=9)
    other = create_seen_pod(cluster, running, "b", 9)
    api_proxy.when("POST", BINDING).cut(times=1)

    assert post_bind(running, pod, "gpu-0").startswith("bind outcome unknown")
    assert read_ledger_states(running) == {"a on gpu-0/0": "unconfirmed, 9"}
    assert "no card with enough free memory" in post_bind(running, other, "gpu-0")

    assert post_bind(running, pod, "gpu-0") == ""
    cluster.wait_until(
        lambda: read_ledger_states(running) == {"a on gpu-0/0": "bound, 9"}, what="the watch confirms it"
    )


def test_timed_out_bind_succeeds_if_the_watch_showed_the_binding_meanwhile(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The Binding was written at once; its reply takes longer than a bind may."""
    pod = create_seen_pod(cluster, running)
    api_proxy.when("POST", BINDING).hold_reply(times=1)

    assert post_bind(running, pod, "gpu-0") == ""

    assert read_ledger_states(running) == {"a on gpu-0/0": "bound, 4"}
    assert (api_proxy.count("POST", BINDING), api_proxy.count("GET", POD)) == (1, 0)


def test_timed_out_bind_stays_unknown_until_the_watch_shows_the_outcome(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The answer comes before the scheduler's 5 s, keeps the place, and the ledger ends with the truth."""
    pod = create_seen_pod(cluster, running)
    api_proxy.freeze_watches()
    api_proxy.when("POST", BINDING).hold_reply(times=1)

    assert post_bind(running, pod, "gpu-0").startswith("bind outcome unknown")
    assert read_ledger_states(running) == {"a on gpu-0/0": "unconfirmed, 4"}
    assert get_pod(cluster)["spec"]["nodeName"] == "gpu-0"

    api_proxy.thaw_watches()
    cluster.wait_until(lambda: read_ledger_states(running) == {"a on gpu-0/0": "bound, 4"}, what="the watch settles it")


def test_a_pod_whose_binds_fail_has_one_reservation(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The first Binding is fenced before the second is sent."""
    pod = create_seen_pod(cluster, running)
    api_proxy.when("POST", BINDING).answer(500, times=1)
    second = api_proxy.when("POST", BINDING).answer(503, times=1)

    assert post_bind(running, pod, "gpu-0").startswith("bind outcome unknown")
    assert post_bind(running, pod, "gpu-1").startswith("bind outcome unknown")
    assert second.hits == 1
    assert read_ledger_states(running) == {"a on gpu-1/0": "unconfirmed, 4"}

    assert post_bind(running, pod, "gpu-1") == ""
    cluster.wait_until(
        lambda: read_ledger_states(running) == {"a on gpu-1/0": "bound, 4"}, what="the watch confirms it"
    )


def test_a_binding_that_was_never_answered_is_fenced(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The pod gets a new version; the API server itself refuses the old Binding then."""
    pod = create_seen_pod(cluster, running)
    api_proxy.when("POST", BINDING).answer(500, times=1)

    assert post_bind(running, pod, "gpu-0").startswith("bind outcome unknown")

    cluster.wait_until(lambda: read_ledger_states(running) == {}, what="the place is free again")
    metadata = {"name": "a", "uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
    late = {"metadata": metadata, "target": {"kind": "Node", "name": "gpu-0"}}
    status, answer = cluster.request("POST", f"{PODS}/a/binding", {"apiVersion": "v1", "kind": "Binding"} | late)
    assert status == HTTPStatus.CONFLICT
    assert "Precondition failed: ResourceVersion" in answer["message"]


def test_pod_that_changed_unseen_is_bound_with_one_get_and_a_second_post(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    pod = create_seen_pod(cluster, running)
    api_proxy.freeze_watches()
    label = {"metadata": {"labels": {"changed": "yes"}}}
    cluster.request_ok("PATCH", f"{PODS}/a", label, content_type="application/merge-patch+json")

    assert post_bind(running, pod, "gpu-0") == ""

    assert (api_proxy.count("POST", BINDING), api_proxy.count("GET", POD)) == (2, 1)
    assert read_metric(running, "vrampack_stale_bindings_total") == 1
    api_proxy.thaw_watches()


def test_pod_whose_binding_is_too_large_for_etcd_holds_nothing(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The pod is created, and the Binding adds more than etcd takes: no other pod loses a unit by that."""
    pod = create_largest_pod(cluster)
    cluster.wait_until(lambda: count_pending_pods(running) == 1, what="the extender saw the pod")

    answer = post_bind(running, pod, "gpu-0")

    assert "request is too large" in answer
    assert answer.endswith("nothing was bound")
    assert read_ledger_states(running) == {}


def test_unconfirmed_place_is_freed_when_its_pod_is_deleted(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    pod = create_seen_pod(cluster, running)
    api_proxy.when("POST", BINDING).answer(500, times=1)
    assert post_bind(running, pod, "gpu-0").startswith("bind outcome unknown")

    cluster.request_ok("DELETE", f"{PODS}/a")

    cluster.wait_until(lambda: read_ledger_states(running) == {}, what="the place is free again")


def test_no_binding_is_sent_after_the_deadline(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    """The pod is not in the ledger, and asking for it takes longer than a bind may."""
    api_proxy.freeze_watches()
    pod = cluster.request_ok("POST", PODS, pod_manifest("a", 4))
    api_proxy.when("GET", POD).delay_reply(4, times=1)

    answer = post_bind(running, pod, "gpu-0")

    assert "nothing was bound" in answer
    assert api_proxy.count("POST", BINDING) == 0
    assert read_ledger_states(running) == {}
    api_proxy.thaw_watches()


def test_pod_missing_from_the_ledger_is_fetched_once(
    cluster: ControlPlane, running: ExtenderProgram, api_proxy: FaultProxyThread
) -> None:
    api_proxy.freeze_watches()
    pod = cluster.request_ok("POST", PODS, pod_manifest("a", 4))

    assert post_bind(running, pod, "gpu-0") == ""

    assert (api_proxy.count("POST", BINDING), api_proxy.count("GET", POD)) == (1, 1)
    api_proxy.thaw_watches()


def test_a_pod_without_gpu_memory_is_bound_without_a_record(cluster: ControlPlane, running: ExtenderProgram) -> None:
    pod = cluster.request_ok("POST", PODS, pod_manifest("a", 0))

    assert post_bind(running, pod, "gpu-0") == ""

    assert get_pod(cluster)["spec"]["nodeName"] == "gpu-0"
    assert "vrampack.dev/allocation" not in get_pod(cluster)["metadata"].get("annotations", {})
    assert read_ledger_states(running) == {}


def test_bind_with_the_uid_of_another_pod_does_not_change_that_pod(
    cluster: ControlPlane, running: ExtenderProgram
) -> None:
    """A call with another pod's uid under a name that does not exist does not change that pod."""
    pod = create_seen_pod(cluster, running)
    assert post_bind(running, pod, "gpu-0") == ""
    cluster.wait_until(lambda: read_ledger_states(running) == {"a on gpu-0/0": "bound, 4"})
    stranger = {"metadata": pod["metadata"] | {"name": "nobody"}}

    assert "nothing was bound" in post_bind(running, stranger, "gpu-1")

    assert read_ledger_states(running) == {"a on gpu-0/0": "bound, 4"}
