"""A real Prometheus that scrapes what the recipe's PodMonitor selects.

Prometheus Operator and the API's service discovery would keep its list of targets; here the test writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from tests.e2e.recipes.hpa.fast_time import shorten
from tests.e2e.recipes.hpa.inference_servers import InferenceServers
from tests.e2e.recipes.hpa.scripted_kubelet import ScriptedKubelet
from tests.support.manifests import load_documents
from tests.support.processes import LOOPBACK, ManagedProcess

PORT = 9090
"""Of the Service `prometheus-operated`; free, in a network namespace of our own."""
TARGETS_EVERY_SECONDS = 0.2


@contextmanager
def run_prometheus(
    folder: Path, program: Path, monitor: Path, kubelet: ScriptedKubelet, servers: InferenceServers
) -> Iterator[ManagedProcess]:
    """Ready, and scraping the pods that run, for as long as the block lasts."""
    targets = folder / "targets.json"
    _write_targets(targets, (), servers.address)
    configuration = folder / "prometheus.json"
    configuration.write_text(json.dumps(_build_configuration(monitor, targets)))
    flags = {
        "config.file": configuration,
        "storage.tsdb.path": folder / "prometheus-data",
        "web.listen-address": f"{LOOPBACK}:{PORT}",
    }
    process = ManagedProcess(
        "prometheus", [program, *(f"--{name}={value}" for name, value in flags.items())], directory=folder
    )
    is_over = Event()

    def follow_pods() -> None:
        written: Collection[str] = []
        while not is_over.wait(TARGETS_EVERY_SECONDS):
            running = kubelet.list_running()
            if running != written:
                _write_targets(targets, running, servers.address)
                written = running

    follower = Thread(target=follow_pods, name="targets")
    process.start()
    try:
        process.wait_ready(f"http://{LOOPBACK}:{PORT}/-/ready", timeout_seconds=60)
        follower.start()
        yield process
    finally:
        is_over.set()
        if follower.is_alive():
            follower.join()
        process.kill()


def _build_configuration(monitor: Path, targets: Path) -> object:
    """What Prometheus Operator makes of this PodMonitor, in fast time."""
    (found,) = load_documents(monitor)
    (endpoint,) = found["spec"]["podMetricsEndpoints"]
    interval = shorten(endpoint["interval"])
    discovery = {"files": [str(targets)], "refresh_interval": "1m"}
    job = {"job_name": found["metadata"]["name"], "scrape_interval": interval, "scrape_timeout": interval}
    return {"scrape_configs": [job | {"file_sd_configs": [discovery]}]}


def _write_targets(file: Path, pods: Collection[str], address: str) -> None:
    """The labels are those that the operator gives to each target of a PodMonitor."""
    groups = [
        {
            "targets": [address],
            "labels": {"__metrics_path__": f"/{pod}/metrics", "namespace": "default", "pod": pod}
            | {"container": "triton", "endpoint": "metrics"},
        }
        for pod in pods
    ]
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(groups))
    partial.rename(file)
