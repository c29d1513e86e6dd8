"""The API server dies, its store hangs or dies: verbs answer in time, nothing is guessed, and all is well soon after.

The programs themselves are killed and stopped. A scheduler that cannot renew its lease for 10 s ends by itself; so it
starts when the API server is back, and survives shorter outages.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.e2e.bench import NODES, BindBench, Pod, read_cards_of, restore_apiserver
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import read_ledger_states, read_metric
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.processes import ManagedProcess

ANSWER_SECONDS = 4
"""A bind has 3 s, the scheduler waits 5."""
BACK_SECONDS = 10
"""So soon after the API server is back, binds succeed again."""


@pytest.fixture
def bench(cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread) -> BindBench:
    """The proxy is not involved: these calls go to the API server itself."""
    for name in NODES:
        cluster.add_node(name, cards=read_cards_of(name))
    return BindBench(cluster, extender(), api_proxy)


def test_extender_survives_an_api_server_outage_and_binds_again_afterwards(
    bench: BindBench, scheduler: Callable[..., ManagedProcess]
) -> None:
    bench.bound("old", 9)
    waits = bench.create_pod("waits", 9)
    bench.cluster.apiserver.kill()

    assert bench.filter(waits)["NodeNames"] == ["gpu-1"], "what it knew a moment ago is still trusted"
    answer = bind_in_time(bench, waits, "gpu-1")
    # It was not sent, unless a connection of before was not known to be closed yet.
    assert answer.endswith("nothing was bound") or answer.startswith("bind outcome unknown")
    assert bench.extender.process.is_running
    restore_apiserver(bench.cluster)

    bench.cluster.wait_until(lambda: bench.bind(waits, "gpu-1") == "", BACK_SECONDS, what="binds succeed again")
    bench.recounted()
    bench.create_unseen_pod("new", 6)
    scheduler()
    bench.cluster.wait_until(lambda: bench.read_node_of("new"), 60, what="the new pod is bound")
    bench.recounted()


def test_an_extender_that_starts_before_the_api_server_waits_for_it(bench: BindBench) -> None:
    bench.bound("old", 9)
    waits = bench.create_pod("waits", 9)
    bench.extender.process.kill()
    bench.cluster.apiserver.kill()
    bench.extender.process.start()
    bench.extender.process.wait_ready(f"{bench.extender.health_url}/healthz")

    assert bench.filter(waits)["Error"].startswith("not ready: the list of nodes is not complete yet")
    assert bench.bind(waits).endswith("nothing was bound")
    restore_apiserver(bench.cluster)

    bench.extender.wait_ready()
    bench.recounted()
    assert bench.filter(waits)["NodeNames"] == ["gpu-1"]


def test_a_hanging_etcd_keeps_reservations_until_it_answers(
    bench: BindBench, scheduler: Callable[..., ManagedProcess]
) -> None:
    """The API server accepts the Binding and cannot report the outcome."""
    waits, other = bench.create_pod("waits", 9), bench.create_pod("other", 9)
    with bench.cluster.etcd.paused():
        unknown_in_time(bench, waits, "gpu-0")
        assert read_ledger_states(bench.extender) == {"waits on gpu-0/0": "unconfirmed, 9"}
        assert bench.filter(other)["NodeNames"] == ["gpu-1"], "its place is not given away"
        assert read_metric(bench.extender, "vrampack_reservations") == 1

    scheduler()
    bench.cluster.wait_until(
        lambda: bench.read_node_of("waits") and bench.read_node_of("other"), 60, what="both are bound"
    )
    bench.recounted()


def test_extender_follows_the_cluster_again_after_etcd_died_and_restarted(
    bench: BindBench, scheduler: Callable[..., ManagedProcess]
) -> None:
    bench.bound("old", 9)
    waits = bench.create_pod("waits", 9)
    bench.cluster.etcd.kill()

    unknown_in_time(bench, waits, "gpu-1")
    bench.cluster.etcd.start()
    bench.cluster.apiserver.wait_ready(f"{bench.cluster.api_url}/readyz", ca_file=bench.cluster.ca_file)

    scheduler()
    bench.cluster.wait_until(lambda: bench.read_node_of("waits"), 60, what="the pod is bound")
    bench.recounted()


def unknown_in_time(bench: BindBench, pod: Pod, node: str) -> None:
    assert bind_in_time(bench, pod, node).startswith("bind outcome unknown")


def bind_in_time(bench: BindBench, pod: Pod, node: str) -> str:
    started = time.monotonic()
    answer = bench.bind(pod, node)
    assert time.monotonic() - started < ANSWER_SECONDS
    return answer
