"""The faults that only silence shows, at the shipped 75 s: too long for `make e2e`, so pytest runs this file only when it is named.

A half-open connection sends nothing and never ends. An API server that was restored from a backup sends nothing either:
the version that the extender has seen is one it has yet to reach.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.bench import BindBench, bind_bench, restore_apiserver
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import count_pending_pods, read_ledger_states, read_metric
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane

SILENCE_SECONDS = 75
TRIED_AGAIN_SECONDS = SILENCE_SECONDS + 15
RESTORED_SECONDS = SILENCE_SECONDS + 60

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def bench(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread
) -> Iterator[BindBench]:
    with bind_bench(cluster, extender, api_proxy) as made:
        yield made


def test_half_open_connection_is_given_up_and_nothing_is_missed(bench: BindBench) -> None:
    bench.bound("old", 6)
    watches = bench.api.count("GET", "watch=true")
    bench.api.freeze_watches()
    bench.delete("old")
    new = bench.create_unseen_pod("new", 12)

    bench.api.seen("GET", "watch=true", watches + 2, within=TRIED_AGAIN_SECONDS)
    bench.api.thaw_watches()

    bench.recounted()
    assert bench.bind(new) == ""


def test_a_cluster_restored_from_a_backup_is_listed_again(bench: BindBench) -> None:
    """What was bound after the backup is unbound again, and the extender ends in the same state."""
    bench.bound("before", 6)
    with stopped_control_plane(bench.cluster):
        shutil.copytree(bench.cluster.directory / "etcd", bench.cluster.directory / "backup")
    bench.recounted()
    bench.create_unseen_pod("after", 3)
    for number in range(20):
        bench.create_unseen_pod(f"more{number}", 1)
    bench.cluster.wait_until(lambda: count_pending_pods(bench.extender) == 21, what="it is in step again")
    bench.bound("lost", 9)
    with stopped_control_plane(bench.cluster):
        shutil.rmtree(bench.cluster.directory / "etcd")
        shutil.move(bench.cluster.directory / "backup", bench.cluster.directory / "etcd")

    bench.cluster.wait_until(
        lambda: read_ledger_states(bench.extender) == {"before on gpu-0/0": "bound, 6"},
        RESTORED_SECONDS,
        what="it is listed again",
    )
    bench.recounted()
    assert sum(count_relists(bench, reason) for reason in ("silent", "error")) >= 1
    assert bench.bind(bench.create_pod("new", 9)) == ""


def count_relists(bench: BindBench, reason: str) -> float:
    return read_metric(bench.extender, f'vrampack_relists_total{{reason="{reason}",resource="pods"}}')


@contextmanager
def stopped_control_plane(cluster: ControlPlane) -> Iterator[None]:
    """Neither store nor API server runs inside; the store ends in order, as before a backup."""
    cluster.apiserver.kill()
    cluster.etcd.stop()
    yield
    cluster.etcd.start()
    restore_apiserver(cluster)
