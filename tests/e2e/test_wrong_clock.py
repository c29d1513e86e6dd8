"""An extender whose clock is ten minutes off places pods like any other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest

from tests.e2e.bench import NODES, bind_bench
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import post_verb, read_ledger_states
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, pod_manifest, read_allocation_record

OTHER_CLOCK = """\
import sys, time
offset = int(sys.argv.pop(1))
time.time = lambda true=time.time: true() + offset
time.time_ns = lambda true=time.time_ns: true() + offset * 10**9
from vrampack.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("seconds", [-600, 600])
def test_a_wrong_clock_changes_no_placement(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread, seconds: int
) -> None:
    """Only the time shown to gpushare's readers is wrong, and a successor with a right clock ignores it."""
    wrong = (sys.executable, "-c", OTHER_CLOCK, str(seconds), "serve")
    with bind_bench(cluster, extender, api_proxy, command=wrong) as bench:
        bench.bound("first", 6)
        bench.extender.process.kill()
    right = extender(fronted=False)

    assert read_ledger_states(right) == {"first on gpu-0/0": "bound, 6"}
    pod = cluster.request_ok("POST", PODS, pod_manifest("b", 9))
    said = post_verb(right, "filter", {"Pod": pod, "NodeNames": list(NODES)})
    assert said["NodeNames"] == list(NODES)
    found = cluster.request_ok("GET", f"{PODS}/first")
    assert read_allocation_record(found)["cards"] == [
        {"uuid": "GPU-of-gpu-0", "index": 0, "units": 6, "of": 15, "whole": False}
    ]
    told = int(found["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_ASSUME_TIME"]) / 1e9
    assert abs(told - seconds - time.time()) < 60
