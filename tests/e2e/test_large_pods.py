"""Pods of the largest size that etcd takes, from somebody who may create pods: they do not take the memory of extender and agent."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.process_memory import read_process_memory_mb
from tests.e2e.bench import LIST, NODES, bind_bench
from tests.e2e.in_cluster import ExtenderProgram
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, pod_manifest
from vrampack.agent.cluster.pod_cache import PodCache
from vrampack.cards import well_known
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials
from vrampack.kube.list_pager import MAX_PAGE_BYTES

LARGE_PODS = 40
POD_BYTES = 1_300_000
PEAK_MB = 140
"""An extender without pods takes 75 MB. One that reads 40 such pods at once takes some 100 MB more."""
AGENT_PEAK_BYTES = 28 << 20
"""Two pages, the pieces of which one is joined, and the client's buffers; all 40 pods are 50 MiB."""


def test_an_agent_lists_and_an_extender_starts_lists_again_and_binds_among_the_largest_pods(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread
) -> None:
    pod = pod_manifest("large", 0)
    pod["spec"]["containers"][0] |= {"resources": {}, "env": [{"name": "A", "value": "x" * POD_BYTES}]}
    pod["spec"]["nodeName"] = NODES[0]
    names = [f"large-{number}" for number in range(LARGE_PODS)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda name: cluster.request_ok("POST", PODS, pod | {"metadata": {"name": name}}), names))
    assert MAX_PAGE_BYTES / 2 < asyncio.run(measure_agent_list(cluster.admin_kubeconfig)) < AGENT_PEAK_BYTES
    with bind_bench(cluster, extender, api_proxy) as bench:
        lists = api_proxy.count("GET", LIST)
        assert lists > LARGE_PODS * POD_BYTES / (8 << 20)
        bench.bound("first")
        api_proxy.expire_watches("/pods")
        cluster.wait_until(lambda: api_proxy.count("GET", LIST) >= 2 * lists - 1, 30, what="all pods are listed again")
        bench.bound("second")
        bench.recounted()
        assert read_process_memory_mb(bench.extender.process.pid, "VmHWM") < PEAK_MB


async def measure_agent_list(kubeconfig: Path) -> int:
    """The most bytes that the pod cache of a node's agent takes until it has listed the node's pods."""
    api = Api(await load_credentials(kubeconfig))
    cache = PodCache(api, resource=well_known.MEMORY_RESOURCE, on_pod_ended=lambda _: None)
    tracemalloc.start()
    reflector = asyncio.create_task(cache.build_reflector(NODES[0]).run())
    try:
        async with asyncio.timeout(30):
            await cache.wait_for_sync()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        reflector.cancel()
        await api.close()
