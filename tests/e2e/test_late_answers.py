"""Under the real scheduler: Bindings refused, lost or late, an extender that sleeps, and no way to it at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.bench import BINDING, BindBench, bind_bench
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import read_ledger_states
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS
from tests.support.processes import ManagedProcess


@pytest.fixture
def bench(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread
) -> Iterator[BindBench]:
    with bind_bench(cluster, extender, api_proxy) as made:
        yield made


def test_whatever_happens_to_bindings_every_pod_is_bound_once(
    bench: BindBench, scheduler: Callable[..., ManagedProcess]
) -> None:
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
        bench.create_unseen_pod(name, 3)

    bench.cluster.wait_until(lambda: all(bench.read_node_of(name) for name in names), 60, what="all are bound")
    assert bench.extender.front
    bench.extender.front.settled()
    bench.recounted()
    # eight that were bound, and no more than one for each of the six faults
    assert bench.api.count("POST", BINDING) <= 14


def test_a_bind_that_ends_after_the_scheduler_gave_up_is_done_once(
    bench: BindBench, scheduler: Callable[..., ManagedProcess]
) -> None:
    """The extender sleeps for the scheduler's five seconds, while its Binding is on its way."""
    scheduler()
    held = bench.api.when("POST", BINDING).hold(times=1)
    bench.create_unseen_pod("a")
    bench.api.reached(held)
    with bench.extender.process.paused():
        held.release()
        assert bench.extender.front
        (call_given_up,) = bench.extender.front.finished("POST", "/bind$")
    assert call_given_up.outcome == "caller left"

    bench.cluster.wait_until(bench.read_node_of, 60, what="the pod is bound")
    bench.recounted()
    assert len(read_ledger_states(bench.extender)) == 1


def test_a_bind_that_the_extender_reads_too_late_does_no_harm(
    bench: BindBench, scheduler: Callable[..., ManagedProcess]
) -> None:
    """The call lies in the sleeping extender's socket until the scheduler has given up."""
    front = bench.extender.front
    assert front
    scheduler()
    held = front.when("POST", "/bind$").hold(times=1)
    bench.create_unseen_pod("a")
    front.reached(held)
    with bench.extender.process.paused():
        held.release()
        front.finished("POST", "/bind$")

    bench.cluster.wait_until(bench.read_node_of, 60, what="the pod is bound")
    front.settled()
    bench.recounted()
    assert len(read_ledger_states(bench.extender)) == 1


def test_the_scheduler_gets_on_without_the_extender_but_for_its_pods(
    bench: BindBench, scheduler: Callable[..., ManagedProcess]
) -> None:
    """No way between scheduler and extender: GPU pods wait and say why, others are bound; then all are."""
    front = bench.extender.front
    assert front
    scheduler()
    front.close()
    bench.create_unseen_pod("gpu", 4)
    plain = {"schedulerName": "vrampack", "containers": [{"name": "main", "image": "example.com/plain:1"}]}
    bench.cluster.request_ok("POST", PODS, {"metadata": {"name": "plain"}, "spec": plain})

    bench.cluster.wait_until(lambda: bench.read_node_of("plain"), what="a pod that asks for no GPU memory is bound")
    bench.cluster.wait_until(
        lambda: "gpushare-scheduler/filter" in waiting_for(bench.cluster, "gpu"), what="the other says why"
    )
    assert not bench.read_node_of("gpu")
    front.start()

    bench.cluster.wait_until(lambda: bench.read_node_of("gpu"), 60, what="it is bound as well")
    bench.recounted()


def waiting_for(cluster: ControlPlane, name: str) -> str:
    conditions = cluster.request_ok("GET", f"{PODS}/{name}")["status"].get("conditions", [])
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")
