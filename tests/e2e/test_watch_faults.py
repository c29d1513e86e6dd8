"""Watches that are cut, expire, or say nothing, and lists that are refused or slow: stale, the verbs refuse rather than guess.

Nothing that happened meanwhile is missed, the process goes on, and it asks a few times, not hundreds.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.bench import BINDING, LIST, NODES, BindBench, bind_bench
from tests.e2e.in_cluster import EXTENDER, ExtenderProgram, installed_configuration
from tests.e2e.verb_calls import read_metric
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane

STALE_SECONDS = 5
"""Instead of the shipped 120: long enough to prepare a test in, and longer than anything else in it."""


@pytest.fixture
def bench(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread
) -> Iterator[BindBench]:
    with bind_bench(cluster, extender, api_proxy) as made:
        yield made


def test_cut_watch_resumes_with_the_events_it_missed(bench: BindBench) -> None:
    bench.bound("old", 6)
    bench.api.freeze_watches()
    bench.delete("old")
    new = bench.create_unseen_pod("new", 12)

    assert bench.api.cut_watches() == 2
    bench.api.thaw_watches()

    bench.recounted()
    assert bench.bind(new) == ""
    assert read_metric(bench.extender, 'vrampack_relists_total{reason="restart",resource="pods"}') == 0


def expired_watch(bench: BindBench) -> None:
    """410 as an event on an open watch."""
    assert bench.api.expire_watches() == 2


def expired_request(bench: BindBench) -> None:
    """410 as the answer to a request to watch."""
    bench.api.when("GET", "watch=true").gone(times=2)
    bench.api.cut_watches()


def expired_list(bench: BindBench) -> None:
    """410 on a watch, and twice on the list that follows."""
    bench.api.when("GET", LIST).gone(times=4)
    bench.api.expire_watches()


def refused_lists(bench: BindBench) -> None:
    """The list that follows is throttled, then fails."""
    bench.api.when("GET", LIST).answer(429, headers={"Retry-After": "1"}, times=2)
    bench.api.when("GET", LIST).answer(500, times=2)
    bench.api.expire_watches()


def slow_lists(bench: BindBench) -> None:
    bench.api.when("GET", LIST).delay_reply(4, times=2)
    bench.api.expire_watches()


EXPIRIES = (expired_watch, expired_request, expired_list, refused_lists, slow_lists)


@pytest.mark.parametrize("expire", EXPIRIES, ids=lambda expire: expire.__name__)
def test_after_410_everything_is_listed_again(bench: BindBench, expire: Callable[[BindBench], None]) -> None:
    """What happened while the watch said nothing is in the list; the process goes on, and asks a few times, not hundreds."""
    bench.bound("old", 6)
    bench.bound("stays", 3)
    bench.api.freeze_watches()
    bench.delete("old")
    new = bench.create_unseen_pod("new", 12)
    before = bench.api.count("GET", LIST)

    expire(bench)
    assert bench.filter(new)["NodeNames"] == ["gpu-1"], "until the list is there, the old pod holds its place"
    bench.api.thaw_watches()

    bench.api.finished("GET", LIST, before + 2)
    bench.cluster.wait_until(lambda: bench.filter(new)["NodeNames"] == ["gpu-0", "gpu-1"], what="it sees the room")
    bench.recounted()
    assert bench.bind(new) == ""
    assert bench.api.count("GET", LIST) - before <= 8
    assert bench.extender.process.is_running


def test_a_stale_extender_refuses_rather_than_guess(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread
) -> None:
    """The watches stay open and say nothing, as on a half-open connection."""
    deadlines = f"deadlines: {{stale_seconds: {STALE_SECONDS}}}"
    written = f"{installed_configuration(cluster, EXTENDER)}\n{deadlines}\n"
    with bind_bench(cluster, extender, api_proxy, configuration=written) as bench:
        refuses_until_it_hears(bench)


def refuses_until_it_hears(bench: BindBench) -> None:
    bench.bound("old", 6)
    bench.api.freeze_watches()
    bench.delete("old")
    new = bench.create_unseen_pod("new", 12)
    sent = bench.api.count("POST", BINDING)

    bench.cluster.wait_until(lambda: bench.filter(new).get("Error"), what="filter answers an error")

    assert "the API server has sent nothing about" in bench.filter(new)["Error"]
    assert bench.bind(new).startswith("not ready: the API server has sent nothing")
    assert bench.api.count("POST", BINDING) == sent
    assert prioritize_status(bench.extender, new) == http.client.SERVICE_UNAVAILABLE
    assert readiness(bench.extender) == http.client.SERVICE_UNAVAILABLE
    bench.api.thaw_watches()
    touch(bench.cluster, "gpu-0")  # the next word about nodes; by itself the API server speaks once a minute
    bench.extender.wait_ready()
    assert bench.bind(new) == ""


def prioritize_status(extender: ExtenderProgram, pod: object) -> int:
    body = json.dumps({"Pod": pod, "NodeNames": list(NODES)}).encode()
    return status_of(urllib.request.Request(f"{extender.url}/prioritize", body, {"Content-Type": "application/json"}))  # noqa: S310 - our own http address


def readiness(extender: ExtenderProgram) -> int:
    return status_of(urllib.request.Request(f"{extender.health_url}/readyz"))  # noqa: S310 - our own http address


def status_of(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - our own http address
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def touch(cluster: ControlPlane, node: str) -> None:
    patch = {"metadata": {"annotations": {"example.com/touched": "yes"}}}
    cluster.request_ok("PATCH", f"/api/v1/nodes/{node}", patch, content_type="application/merge-patch+json")
