"""What the admission policies cost the API server: its CPU time for one write of a pod, with the policies minus without them.

Three writes are measured: the creation of a pod without annotations that asks for no GPU memory, that of one that asks, and a
change of a pod's status, which kubelets write most often. Creations are dry runs, which admission treats as any other. The
policies are those of the recommended install for `exact` nodes. They are measured first and last, and without their bindings in
between, so that a machine that becomes slower or faster meanwhile changes the difference less. It says nothing about the time
to wait, which other load decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from http import HTTPStatus

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cpu_meter import CpuMeter
from benchmarks.live_cluster import IMMEDIATE_DELETION, ApiServerClient, collect_pids, run_control_plane
from benchmarks.options import BenchmarkOptions
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifest_builders import PODS, pod_manifest

COMMAND = "python -m benchmarks admission"
WRITE_COUNT, WARM_UP_COUNT = 1000, 100
API_SERVER = "kube-apiserver"
BINDINGS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}admissionpolicybindings" for kind in ("validating", "mutating")
)
IMPOSSIBLE_UNITS = 10**9
"""Bytes, where units were meant: the policies refuse such a pod."""
WRITES = {
    "plain": "creation of a pod without annotations that asks for no GPU memory",
    "asking": "creation of a pod that asks for GPU memory",
    "status": "change of a pod's status",
}


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure on a separate control plane."""
    with run_control_plane() as cluster:
        yield from measure_rows_on(cluster, options)


def measure_rows_on(cluster: ControlPlane, options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """The policies must be in force at first, and are again at the end."""
    count, warm_up = options.scale_count(WRITE_COUNT), options.scale_count(WARM_UP_COUNT)
    first = _measure_writes(cluster, count, warm_up)
    _delete_bindings(cluster)
    without = _measure_writes(cluster, count, warm_up)
    cluster.install_manifests()
    last = _measure_writes(cluster, count, warm_up)
    for name, description in WRITES.items():
        beside = (first[name] + last[name]) / 2
        yield BenchmarkRow(
            f"admission-{name}",
            f"CPU time of the policies, {description}",
            COMMAND,
            beside - without[name],
            "ms",
            None,
            None,
            note=f"{beside:.2f} with the policies, {without[name]:.2f} without",
        )


def _measure_writes(cluster: ControlPlane, count: int, warm_up: int) -> Mapping[str, float]:
    """The API server's CPU time for one write of each kind, in ms."""
    container = {"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": "100m"}}}
    annotations = {"prometheus.io/scrape": "true"}
    plain = {"metadata": {"name": "plain", "annotations": annotations}, "spec": {"containers": [container]}}
    cluster.request_ok("POST", PODS, plain)
    with (
        closing(ApiServerClient(cluster)) as creating,
        closing(ApiServerClient(cluster, content_type="application/merge-patch+json")) as patching,
    ):
        found = {
            "plain": _measure_cost(
                cluster, partial(_create, creating, {**plain, "metadata": {"generateName": "p-"}}), count, warm_up
            ),
            "asking": _measure_cost(cluster, partial(_create, creating, pod_manifest("asking", 4)), count, warm_up),
            "status": _measure_cost(cluster, partial(_change_status, patching), count, warm_up),
        }
    cluster.request_ok("DELETE", f"{PODS}/plain", IMMEDIATE_DELETION)
    return found


def _measure_cost(cluster: ControlPlane, write: Callable[[int], None], count: int, warm_up: int) -> float:
    for number in range(warm_up):
        write(number)
    meter = CpuMeter(collect_pids(cluster))
    for number in range(warm_up, warm_up + count):
        write(number)
    return 1000 * meter.read_usage().seconds_by_process[API_SERVER] / count


def _create(caller: ApiServerClient, pod: Json, _number: int) -> None:
    caller.send_request("POST", f"{PODS}?dryRun=All", pod)


def _change_status(caller: ApiServerClient, number: int) -> None:
    caller.send_request("PATCH", f"{PODS}/plain/status", {"status": {"message": f"{number}"}})


def _delete_bindings(cluster: ControlPlane) -> None:
    """Take the policies out of force, and wait until they are."""
    for bindings in BINDINGS:
        cluster.request_ok("DELETE", bindings)
    probe = pod_manifest("probe", IMPOSSIBLE_UNITS)
    cluster.wait_until(
        lambda: cluster.request("POST", f"{PODS}?dryRun=All", probe)[0] == HTTPStatus.CREATED,
        30,
        what="no policy is in force",
    )
