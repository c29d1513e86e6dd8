"""What the replicas would export: Triton's counters of requests and of the time they queued, for each running pod.

Requests are shared evenly. How long one waits falls with the number of replicas, so that an autoscaler has an effect:
`demand_us` is the average with one replica, `demand_us / n` with n of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from threading import Lock, Thread
from typing import Self

from tests.support.processes import LOOPBACK

REQUESTS_PER_SECOND = 3000
"""Of all replicas together: many beside the 1 by which the rule avoids a division by zero."""
METRICS = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{{model="resnet50",version="1"}} {requests:.0f}
# HELP nv_inference_queue_duration_us Cumulative inference queuing duration in microseconds
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{{model="resnet50",version="1"}} {queued_us:.0f}
"""


class InferenceServers:
    """A page for each pod at `http://127.0.0.1:PORT/POD/metrics`, while the context lasts."""

    def __init__(self, list_running: Callable[[], Collection[str]]) -> None:
        self._list_running = list_running
        self._demand_us = 0.0
        self._requests: dict[str, float] = {}
        self._queued_us: dict[str, float] = {}
        self._counted_at = time.monotonic()
        self._lock = Lock()
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._build_handler())
        self._thread = Thread(target=self._server.serve_forever, name="inference-servers")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._server.server_port}"

    def set_demand(self, demand_us: float) -> None:
        """From now on this much waiting time with one replica; 0: no requests at all."""
        with self._lock:
            self._count_requests()
            self._demand_us = demand_us

    def render_metrics(self, pod: str) -> str | None:
        """None for a pod that does not run."""
        with self._lock:
            self._count_requests()
            if pod not in self._requests:
                return None
            return METRICS.format(requests=self._requests[pod], queued_us=self._queued_us[pod])

    def _count_requests(self) -> None:
        """Since the last time, by those that run now."""
        now = time.monotonic()
        elapsed, self._counted_at = now - self._counted_at, now
        running = self._list_running()
        share = REQUESTS_PER_SECOND * elapsed / len(running) if running and self._demand_us else 0.0
        waited_us = self._demand_us / max(len(running), 1)
        self._requests = {pod: self._requests.get(pod, 0.0) + share for pod in running}
        self._queued_us = {pod: self._queued_us.get(pod, 0.0) + share * waited_us for pod in running}

    def _build_handler(self) -> type[BaseHTTPRequestHandler]:
        servers = self

        class MetricsPage(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, pod, _ = PurePosixPath(self.path).parts
                text = servers.render_metrics(pod)
                self.send_response(404 if text is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
                """One line for each scrape would hide everything else."""

        return MetricsPage
