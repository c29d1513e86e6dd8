"""Pods of the largest size that etcd takes, from somebody who may create pods: they do not take the extender's memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.process_memory import read_process_memory_mb
from tests.e2e.bench import LIST, bind_bench
from tests.e2e.in_cluster import ExtenderProgram
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, pod_manifest

LARGE_PODS = 40
POD_BYTES = 1_300_000
PEAK_MB = 140
"""An extender without pods takes 75 MB. One that reads 40 such pods at once takes some 100 MB more."""


def test_an_extender_starts_lists_again_and_binds_among_the_largest_pods(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread
) -> None:
    pod = pod_manifest("large", 0)
    pod["spec"]["containers"][0] |= {"resources": {}, "env": [{"name": "A", "value": "x" * POD_BYTES}]}
    names = [f"large-{number}" for number in range(LARGE_PODS)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda name: cluster.request_ok("POST", PODS, pod | {"metadata": {"name": name}}), names))
    with bind_bench(cluster, extender, api_proxy) as bench:
        lists = api_proxy.count("GET", LIST)
        assert lists > LARGE_PODS * POD_BYTES / (8 << 20)
        bench.bound("first")
        api_proxy.expire_watches("/pods")
        cluster.wait_until(lambda: api_proxy.count("GET", LIST) >= 2 * lists - 1, 30, what="all pods are listed again")
        bench.bound("second")
        bench.recounted()
        assert read_process_memory_mb(bench.extender.process.pid, "VmHWM") < PEAK_MB
