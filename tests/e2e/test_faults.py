"""Faults between the extender and the API server: what holds meanwhile, and what is true again afterwards.

`tests/test_fault_matrix.py` says which fault is tried where, and which are not tried yet. Here no scheduler runs but where
a test asks for one; programs that die or stop are in `test_outages.py`.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.bench import BINDING, LIST, NODES, Bench, cards_of
from tests.e2e.cluster import Cluster
from tests.e2e.in_cluster import Extender, installed_configuration
from tests.e2e.objects import PODS, a_card, a_pod, allocation, cards
from tests.e2e.processes import LOOPBACK, Process
from tests.e2e.verb_calls import call, inspect, metric, states
from tests.fakes.proxy_thread import ProxyThread

STALE_SECONDS = 5
"""Instead of the shipped 120: long enough to prepare a test in, and longer than anything else in it."""


@pytest.fixture
def bench(cluster: Cluster, extender: Callable[..., Extender], api_proxy: ProxyThread) -> Iterator[Bench]:
    for name in NODES:
        cluster.add_node(name, cards=cards_of(name))
    yield Bench(cluster, extender(api=(LOOPBACK, api_proxy.port)), api_proxy)
    api_proxy.clear()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """For a call that is under way while the test does something else."""
    with ThreadPoolExecutor() as pool:
        yield pool


def test_a_pod_deleted_during_its_bind_is_bound_nowhere_and_holds_nothing(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    pod = bench.pod()
    held = bench.api.when("POST", BINDING).hold(times=1)
    answer = thread.submit(bench.bind, pod)
    bench.api.reached(held)
    bench.delete("a")
    held.release()

    assert "nothing was bound" in answer.result()
    bench.recounted()


def test_a_pod_deleted_before_its_bind_is_answered_leaves_its_place(bench: Bench, thread: ThreadPoolExecutor) -> None:
    """The Binding was written, the pod is gone before the extender hears of either."""
    pod = bench.pod()
    held = bench.api.when("POST", BINDING).hold_reply(times=1)
    answer = thread.submit(bench.bind, pod)
    bench.api.reached(held)
    bench.delete("a")
    held.release()

    answer.result()
    bench.recounted()
    assert bench.bind(bench.pod("b", 15)) == ""


def test_a_node_deleted_during_a_bind_takes_the_place_with_it(
    bench: Bench, thread: ThreadPoolExecutor, excused: list[str]
) -> None:
    """The API server binds to a node that is gone. That is said truly, and counts if the node comes back."""
    excused.append("pod default/a")
    pod = bench.pod(units=9)
    held = bench.api.when("POST", BINDING).hold(times=1)
    answer = thread.submit(bench.bind, pod)
    bench.api.reached(held)
    bench.cluster.must("DELETE", "/api/v1/nodes/gpu-0")
    bench.cluster.wait(lambda: [each["name"] for each in inspect(bench.extender)["nodes"]] == ["gpu-1"])
    held.release()

    assert answer.result() == ""
    assert bench.node_of() == "gpu-0"
    bench.recounted()
    bench.cluster.add_node("gpu-0", cards=cards_of("gpu-0"))
    bench.cluster.wait(lambda: states(bench.extender) == {"a on gpu-0/0": "bound, 9"}, what="it counts again")
    assert "no card with enough free memory" in bench.bind(bench.pod("b", 9))
    bench.recounted()


def test_a_node_that_comes_back_with_other_cards_gives_no_room_that_its_pods_may_have(
    bench: Bench, excused: list[str]
) -> None:
    """Nobody knows where its old pod is now, so it counts on every card."""
    excused.append("pod default/a")
    bench.bound(units=9)
    bench.cluster.must("DELETE", "/api/v1/nodes/gpu-0")
    bench.cluster.add_node("gpu-0", cards=cards(a_card(0, uuid="GPU-new-0"), a_card(1, uuid="GPU-new-1")))

    bench.cluster.wait(
        lambda: states(bench.extender) == {"a on gpu-0/0": "bound, 9", "a on gpu-0/1": "bound, 9"},
        what="the pod counts on both new cards",
    )
    assert "no card with enough free memory" in bench.bind(bench.pod("b", 9))
    assert bench.bind(bench.pod("c", 6)) == ""
    bench.recounted()


def test_a_watch_that_is_cut_goes_on_with_what_it_missed(bench: Bench) -> None:
    bench.bound("old", 6)
    bench.api.freeze_watches()
    bench.delete("old")
    new = bench.unseen_pod("new", 12)

    assert bench.api.cut_watches() == 2
    bench.api.thaw_watches()

    bench.recounted()
    assert bench.bind(new) == ""
    assert metric(bench.extender, 'vrampack_relists_total{reason="restart",resource="pods"}') == 0


def expired_watch(bench: Bench) -> None:
    """410 as an event on a watch that stands."""
    assert bench.api.expire_watches() == 2


def expired_request(bench: Bench) -> None:
    """410 as the answer to a request to watch."""
    bench.api.when("GET", "watch=true").gone(times=2)
    bench.api.cut_watches()


def expired_list(bench: Bench) -> None:
    """410 on a watch, and twice on the list that follows."""
    bench.api.when("GET", LIST).gone(times=4)
    bench.api.expire_watches()


def refused_lists(bench: Bench) -> None:
    """The list that follows is throttled, then fails."""
    bench.api.when("GET", LIST).answer(429, headers={"Retry-After": "1"}, times=2)
    bench.api.when("GET", LIST).answer(500, times=2)
    bench.api.expire_watches()


def slow_lists(bench: Bench) -> None:
    bench.api.when("GET", LIST).delay_reply(4, times=2)
    bench.api.expire_watches()


EXPIRIES = (expired_watch, expired_request, expired_list, refused_lists, slow_lists)


@pytest.mark.parametrize("expire", EXPIRIES, ids=lambda expire: expire.__name__)
def test_after_410_everything_is_listed_anew(bench: Bench, expire: Callable[[Bench], None]) -> None:
    """What happened while the watch said nothing is in the list; the process goes on, and asks a few times, not hundreds."""
    bench.bound("old", 6)
    bench.bound("stays", 3)
    bench.api.freeze_watches()
    bench.delete("old")
    new = bench.unseen_pod("new", 12)
    before = bench.api.count("GET", LIST)

    expire(bench)
    assert bench.filter(new)["NodeNames"] == ["gpu-1"], "until the list is there, the old pod holds its place"
    bench.api.thaw_watches()

    bench.api.finished("GET", LIST, before + 2)
    bench.cluster.wait(lambda: bench.filter(new)["NodeNames"] == ["gpu-0", "gpu-1"], what="it sees the room")
    bench.recounted()
    assert bench.bind(new) == ""
    assert bench.api.count("GET", LIST) - before <= 8
    assert bench.extender.process.is_running


def test_a_stale_extender_refuses_rather_than_guess(
    cluster: Cluster, extender: Callable[..., Extender], api_proxy: ProxyThread
) -> None:
    """The watches stand and say nothing, as behind a line that is half open."""
    for name in NODES:
        cluster.add_node(name, cards=cards_of(name))
    written = (
        f"{installed_configuration(cluster, 'vrampack-extender')}\ndeadlines: {{stale_seconds: {STALE_SECONDS}}}\n"
    )
    bench = Bench(cluster, extender(api=(LOOPBACK, api_proxy.port), configuration=written), api_proxy)
    bench.bound("old", 6)
    api_proxy.freeze_watches()
    bench.delete("old")
    new = bench.unseen_pod("new", 12)
    sent = api_proxy.count("POST", BINDING)

    cluster.wait(lambda: bench.filter(new).get("Error"), what="filter answers an error")

    assert "no word from the API server about" in bench.filter(new)["Error"]
    assert bench.bind(new).startswith("not ready: no word from the API server")
    assert api_proxy.count("POST", BINDING) == sent
    assert prioritize_status(bench.extender, new) == http.client.SERVICE_UNAVAILABLE
    assert readiness(bench.extender) == http.client.SERVICE_UNAVAILABLE
    api_proxy.thaw_watches()
    touch(cluster, "gpu-0")  # the next word about nodes; by itself the API server speaks once a minute
    bench.extender.wait_ready()
    assert bench.bind(new) == ""


def prioritize_status(extender: Extender, pod: object) -> int:
    body = json.dumps({"Pod": pod, "NodeNames": list(NODES)}).encode()
    return status_of(urllib.request.Request(f"{extender.url}/prioritize", body, {"Content-Type": "application/json"}))  # noqa: S310 - our own http address


def readiness(extender: Extender) -> int:
    return status_of(urllib.request.Request(f"{extender.health_url}/readyz"))  # noqa: S310 - our own http address


def status_of(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - our own http address
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def touch(cluster: Cluster, node: str) -> None:
    patch = {"metadata": {"annotations": {"example.com/touched": "yes"}}}
    cluster.must("PATCH", f"/api/v1/nodes/{node}", patch, content_type="application/merge-patch+json")


def test_whatever_happens_to_bindings_every_pod_is_bound_once(bench: Bench, scheduler: Callable[..., Process]) -> None:
    """Throttled, failed, cut before and after the write, and slower than a bind may be: one each, then all is well."""
    bindings = bench.api.when("POST", BINDING)
    bindings.answer(429, headers={"Retry-After": "1"}, times=1)
    bindings.answer(500, times=1)
    bindings.cut(times=1)
    bindings.cut_after_write(times=1)
    bindings.delay_reply(4, times=1)
    bindings.delay(4, times=1)
    scheduler()
    names = [f"p{number}" for number in range(8)]

    for name in names:
        bench.unseen_pod(name, 3)

    bench.cluster.wait(lambda: all(bench.node_of(name) for name in names), 60, what="all are bound")
    assert bench.extender.front
    bench.extender.front.settled()
    bench.recounted()
    # eight that were bound, and no more than one for each of the six faults
    assert bench.api.count("POST", BINDING) <= 14


def test_a_bind_that_ends_after_the_scheduler_gave_up_is_done_once(
    bench: Bench, scheduler: Callable[..., Process]
) -> None:
    """The extender sleeps for the scheduler's five seconds, while its Binding is on its way."""
    scheduler()
    held = bench.api.when("POST", BINDING).hold(times=1)
    bench.unseen_pod("a")
    bench.api.reached(held)
    with bench.extender.process.stopped():
        held.release()
        assert bench.extender.front
        (call_given_up,) = bench.extender.front.finished("POST", "/bind$")
    assert call_given_up.outcome == "caller left"

    bench.cluster.wait(bench.node_of, 60, what="the pod is bound")
    bench.recounted()
    assert len(states(bench.extender)) == 1


def test_the_scheduler_gets_on_without_the_extender_but_for_its_pods(
    bench: Bench, scheduler: Callable[..., Process]
) -> None:
    """No way between scheduler and extender: GPU pods wait and say why, others are bound; then all are."""
    front = bench.extender.front
    assert front
    scheduler()
    front.close()
    bench.unseen_pod("gpu", 4)
    plain = {"schedulerName": "vrampack", "containers": [{"name": "main", "image": "example.com/plain:1"}]}
    bench.cluster.must("POST", PODS, {"metadata": {"name": "plain"}, "spec": plain})

    bench.cluster.wait(lambda: bench.node_of("plain"), what="a pod that asks for no GPU memory is bound")
    bench.cluster.wait(
        lambda: "gpushare-scheduler/filter" in waiting_for(bench.cluster, "gpu"), what="the other says why"
    )
    assert not bench.node_of("gpu")
    front.start()

    bench.cluster.wait(lambda: bench.node_of("gpu"), 60, what="it is bound as well")
    bench.recounted()


def waiting_for(cluster: Cluster, name: str) -> str:
    conditions = cluster.must("GET", f"{PODS}/{name}")["status"].get("conditions", [])
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


OTHER_CLOCK = """\
import sys, time
offset = int(sys.argv.pop(1))
time.time = lambda true=time.time: true() + offset
time.time_ns = lambda true=time.time_ns: true() + offset * 10**9
from cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("seconds", [-600, 600])
def test_a_wrong_clock_changes_no_placement(
    cluster: Cluster, extender: Callable[..., Extender], api_proxy: ProxyThread, seconds: int
) -> None:
    """Only the time that gpushare's readers are told is wrong, and a successor with a right clock makes nothing of it."""
    for name in NODES:
        cluster.add_node(name, cards=cards_of(name))
    wrong = (sys.executable, "-c", OTHER_CLOCK, str(seconds), "serve")
    bench = Bench(cluster, extender(api=(LOOPBACK, api_proxy.port), command=wrong), api_proxy)
    bench.bound("first", 6)
    bench.extender.process.kill()
    right = extender(fronted=False)

    assert states(right) == {"first on gpu-0/0": "bound, 6"}
    said = call(
        right, "filter", {"Pod": a_pod("b", 9) | {"metadata": {"name": "b", "uid": "b"}}, "NodeNames": list(NODES)}
    )
    assert said["NodeNames"] == list(NODES)
    found = cluster.must("GET", f"{PODS}/first")
    assert allocation(found)["cards"] == [{"uuid": "GPU-of-gpu-0", "index": 0, "units": 6, "whole": False}]
    told = int(found["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_ASSUME_TIME"]) / 1e9
    assert abs(told - seconds - time.time()) < 60
