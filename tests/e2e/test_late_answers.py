"""Under the real scheduler: Bindings refused, lost or late, an extender that sleeps, and no way to it at all.

`VRAMPACK_OUTAGE_SECONDS` says how long Bindings go unanswered (20); `make soak` has 45, in which look-ups reach their longest backoff.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.auditor.places import find_placeable_pods
from tests.e2e.auditing import assert_never_oversold
from tests.e2e.bench import BINDING, BindBench, bind_bench
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import read_ledger_states, read_metric
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS
from tests.support.processes import ManagedProcess

OUTAGE_SECONDS = int(os.environ.get("VRAMPACK_OUTAGE_SECONDS", "20"))
RECOVERY_SECONDS = 60
PODS_AT_ONCE = 12
"""They ask for 48 units, and there are 30."""
MOST_BINDINGS = 2000
POD = r"^/api/v1/namespaces/default/pods/[^/?]+$"


@pytest.fixture
def bench(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread
) -> Iterator[BindBench]:
    with bind_bench(cluster, extender, api_proxy) as made:
        yield made


def test_every_pod_is_bound_once_despite_every_kind_of_binding_fault(
    bench: BindBench, scheduler: Callable[..., ManagedProcess]
) -> None:
    """Throttled, failed, cut before and after the write, and slower than a bind may be: one each, then no fault."""
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


def test_an_outage_of_bindings_leaves_no_unit_unaccounted_for(
    bench: BindBench, scheduler: Callable[..., ManagedProcess]
) -> None:
    """For so long neither Bindings nor reads of a pod are answered. Half of the Bindings land all the same, all are sent again later.

    Pods come and go meanwhile. Then every pod that has room is bound within a minute, and no card was over at any moment.
    """
    scheduler()
    with assert_never_oversold(bench.cluster):
        outage = BindingOutage(bench)
        outage.run(OUTAGE_SECONDS)
        bench.cluster.wait_until(
            lambda: not outage.list_unaccounted(), RECOVERY_SECONDS, what=lambda: f"left: {outage.list_unaccounted()}"
        )
    bench.recounted()
    assert outage.sent_late > 0
    assert read_metric(bench.extender, "vrampack_bound_after_flush_total") == 0


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


def test_without_the_extender_the_scheduler_binds_all_other_pods(
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


class BindingOutage:
    """The API server's Bindings fail, as far as the extender can see."""

    def __init__(self, bench: BindBench) -> None:
        self._bench = bench
        self._names = [f"p{number}" for number in range(PODS_AT_ONCE)]
        self._seen = 0
        self.sent_late = 0

    def run(self, seconds: float) -> None:
        for name in self._names:
            self._bench.create_unseen_pod(name)
        for _ in range(MOST_BINDINGS // 2):
            self._bench.api.when("POST", BINDING).answer(500, times=1)
            self._bench.api.when("POST", BINDING).cut_after_write(times=1)
        self._bench.api.when("GET", POD).answer(500)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(TimeoutError):
                self._bench.cluster.wait_until(self._has_new_calls, 3)
            self._send_again()
            self._exchange_pod()
        assert self._seen < MOST_BINDINGS
        self._bench.api.clear()

    def list_unaccounted(self) -> list[str]:
        """Places that are neither bound nor gone, and pods that wait although there is room for them."""
        get = self._bench.cluster.request_ok
        waiting = find_placeable_pods(get("GET", PODS)["items"], get("GET", "/api/v1/nodes")["items"])
        states = read_ledger_states(self._bench.extender)
        return [name for name, state in states.items() if not state.startswith("bound")] + list(waiting)

    def _has_new_calls(self) -> bool:
        return self._bench.api.count("POST", BINDING) >= self._seen + 2

    def _send_again(self) -> None:
        """As the extender sent it: the API server refuses what is fenced by now, and what has landed."""
        calls = self._bench.api.matching("POST", BINDING)
        for call in calls[self._seen :]:
            self._bench.cluster.request("POST", call.target, json.loads(call.body))
            self.sent_late += 1
        self._seen = len(calls)

    def _exchange_pod(self) -> None:
        self._bench.delete(self._names.pop(0))
        self._names.append(f"p{int(self._names[-1][1:]) + 1}")
        self._bench.create_unseen_pod(self._names[-1])


def waiting_for(cluster: ControlPlane, name: str) -> str:
    conditions = cluster.request_ok("GET", f"{PODS}/{name}")["status"].get("conditions", [])
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")
