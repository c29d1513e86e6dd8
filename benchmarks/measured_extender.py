"""The extender under measurement: `vrampack serve` as a separate process, on a canned API server."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.canned_api import CannedApiServer
from benchmarks.cluster_objects import BenchmarkCluster
from benchmarks.cpu_meter import read_cpu_seconds
from benchmarks.process_memory import read_process_memory_mb
from tests.support.processes import ManagedProcess, choose_free_ports
from vrampack.simulator.kubeconfig import write_kubeconfig

URL_PREFIX = "/gpushare-scheduler"
SERVE_COMMAND = (sys.executable, "-m", "vrampack.cli")
_CONFIGURATION = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"
_READY_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class ListPages:
    """The lists of a cluster as bytes."""

    nodes: list[bytes]
    pods: list[bytes]

    @classmethod
    def from_cluster(cls, cluster: BenchmarkCluster) -> Self:
        return cls(cluster.encode_node_pages(), cluster.encode_pod_pages())


@dataclass(frozen=True, slots=True)
class MeasuredExtender:
    """A ready extender."""

    api: CannedApiServer
    process: ManagedProcess
    port: int
    started_at: float
    """When the process was started, and when it was ready, by `time.monotonic`."""
    ready_at: float

    def read_cpu_seconds(self) -> float:
        """The user and system time of the process so far."""
        return read_cpu_seconds(self.process.pid)

    def read_memory_mb(self, field: str) -> float:
        """`VmRSS` or `VmHWM` of the process, in millions of bytes."""
        return read_process_memory_mb(self.process.pid, field)


@contextmanager
def run_measured_extender(
    pages: ListPages, *, command: Sequence[str] = SERVE_COMMAND, environment: Mapping[str, str] | None = None
) -> Iterator[MeasuredExtender]:
    """Run `command serve ...` on a cluster with these lists, from its start to its clean end."""
    lists = {"nodes": pages.nodes, "pods": pages.pods}
    with tempfile.TemporaryDirectory(prefix="vrampack-bench-") as name, CannedApiServer(lists) as api:
        folder = Path(name)
        configuration = folder / "config.yaml"
        configuration.write_text(_CONFIGURATION)
        port, health_port = choose_free_ports(2)
        flags: list[str | Path] = ["--config", configuration, "--kubeconfig", write_kubeconfig(folder, api.url)]
        flags += ["--listen", f"127.0.0.1:{port}", "--health-listen", f"127.0.0.1:{health_port}", "--ready-after", "0"]
        process = ManagedProcess("vrampack", [*command, "serve", *flags], directory=folder, environment=environment)
        started = time.monotonic()
        process.start()
        try:
            process.wait_ready(f"http://127.0.0.1:{health_port}/readyz", timeout_seconds=_READY_SECONDS)
            yield MeasuredExtender(api, process, port, started, time.monotonic())
        finally:
            process.stop()
