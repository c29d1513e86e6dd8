"""What the extender needs on clusters of 100, 1,000 and 5,000 nodes: memory, and a core's time while nothing happens.

There are ten pods a node, four of them ours, in pages as in `rebuild`. The webhook knows no cluster: it is measured at rest, and
with as many of the largest bodies as it takes at once. The requests and limits of the manifests and the table of
docs/install.md come from these figures. They do not tell what a busy cluster costs: `scheduler` measures the CPU time per pod.
"""

from __future__ import annotations

import json
import ssl
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPSConnection
from pathlib import Path

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cluster_objects import BenchmarkCluster
from benchmarks.measured_extender import ListPages, run_measured_extender
from benchmarks.options import BenchmarkOptions
from benchmarks.process_memory import read_process_memory_mb
from extender.http.admission_routes import MAX_BODY_BYTES, MAX_LARGE_BODIES_BYTES
from tests.support.admission.pods import admission_container, admission_pod
from tests.support.admission_process import AdmissionProcess, run_admission_process

NODE_COUNTS = (100, 1000, 5000)
OWN_PODS_PER_NODE, OTHER_PODS_PER_NODE = 4, 6
REST_SECONDS = 20
ANNOTATION = "x" * 12
BYTES_OF_AN_ANNOTATION = len(f'"{10**6}": "{ANNOTATION}", ')
COMMAND = "python -m benchmarks footprint"


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure each size in its own process, from its start."""
    for nodes in NODE_COUNTS:
        yield from _measure_size(nodes, options)
    yield from _measure_webhook(options)


def _measure_size(nodes: int, options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    count = options.scale_count(nodes)
    own, others = count * OWN_PODS_PER_NODE, count * OTHER_PODS_PER_NODE
    cluster = BenchmarkCluster(count, own, others=others, full_share=0.5, seed=options.seed)
    seconds = options.scale_count(REST_SECONDS, 1)
    with run_measured_extender(ListPages.from_cluster(cluster)) as subject:
        started = subject.read_cpu_seconds()
        time.sleep(seconds)
        figures = {
            "rss": (subject.read_memory_mb("VmRSS"), "MB"),
            "peak-rss": (subject.read_memory_mb("VmHWM"), "MB"),
            "rest": (100 * (subject.read_cpu_seconds() - started) / seconds, "%"),
        }
    what = {"rss": "resident", "peak-rss": "resident at most", "rest": "of a core at rest"}
    for name, (figure, unit) in figures.items():
        yield BenchmarkRow(
            f"footprint-{nodes}-{name}",
            f"{count:,} nodes, {own + others:,} pods, {what[name]}",
            COMMAND,
            figure,
            unit,
            None,
            None,
        )


def _measure_webhook(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    callers = MAX_LARGE_BODIES_BYTES // MAX_BODY_BYTES
    body = _build_large_review(options.scale_count(MAX_BODY_BYTES // BYTES_OF_AN_ANNOTATION))
    with tempfile.TemporaryDirectory(prefix="vrampack-bench-") as name, run_admission_process(Path(name)) as webhook:
        resident = read_process_memory_mb(webhook.process.pid, "VmRSS")
        with ThreadPoolExecutor(callers) as threads:
            for answer in [threads.submit(_send_review, webhook, body) for _ in range(callers)]:
                answer.result()
        peak = read_process_memory_mb(webhook.process.pid, "VmHWM")
    what = f"at most, {callers} reviews of {len(body) / 1e6:.1f} MB at once"
    yield BenchmarkRow("footprint-webhook-rss", "webhook, resident", COMMAND, resident, "MB", None, None)
    yield BenchmarkRow("footprint-webhook-peak-rss", f"webhook, {what}", COMMAND, peak, "MB", None, None)


def _build_large_review(annotations: int) -> bytes:
    pod = admission_pod(admission_container(units=4))
    pod["metadata"]["annotations"] = {str(index): ANNOTATION for index in range(annotations)}
    request = {"uid": "large", "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


def _send_review(webhook: AdmissionProcess, body: bytes) -> None:
    context = ssl.create_default_context(cafile=str(webhook.authority.ca_file))
    connection = HTTPSConnection(*webhook.address, context=context, timeout=60)
    try:
        connection.request("POST", "/mutate", body, {"content-type": "application/json"})
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != HTTPStatus.OK:
        raise RuntimeError(f"the webhook answered a review of {len(body)} bytes with {status}")
