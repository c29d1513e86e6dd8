"""Runs prometheus-adapter and KEDA as their Deployments say, in the places where their pods would be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.recipes.hpa.fast_time import hasten, shorten
from tests.e2e.recipes.hpa.scaled_service import RECIPE, ScaledService
from tests.support.manifests import find_containers
from tests.support.processes import ManagedProcess

MONITORING = "monitoring"
ADAPTER = "prometheus-adapter"
RELIST = "--metrics-relist-interval="
HTTPS_PORT = 443
"""Of the Service: kube-proxy would lead from there to the pod's own port."""


@contextmanager
def run_prometheus_adapter(service: ScaledService) -> Iterator[ManagedProcess]:
    """The recipe's objects as they stand; the program under its own account, behind its Service."""
    cluster = service.cluster
    cluster.kubectl("apply", "--warnings-as-errors", "-f", RECIPE / "prometheus-adapter.yaml")
    address = service.network.publish_service(ADAPTER, MONITORING)
    account = cluster.kubeconfig(MONITORING, ADAPTER)
    folder = cluster.directory / ADAPTER
    folder.mkdir()
    arguments = _read_arguments(service, ADAPTER, MONITORING)
    command: list[str | Path] = [
        service.programs.prometheus_adapter,
        *arguments,
        f"--config={_write_configuration(service, folder)}",
        f"--cert-dir={folder}",
        f"--bind-address={address}",
        f"--secure-port={HTTPS_PORT}",
        *(f"--{role}-kubeconfig={account}" for role in ("lister", "authentication", "authorization")),
        *(RELIST + shorten(each.removeprefix(RELIST)) for each in arguments if each.startswith(RELIST)),
    ]
    process = service.network.build_process(ADAPTER, command)
    process.start()
    try:
        wait_until_served(service, "v1beta2.custom.metrics.k8s.io", process)
        yield process
    finally:
        process.kill()


def wait_until_served(service: ScaledService, name: str, process: ManagedProcess) -> None:
    """Wait until the API server takes this APIService for available."""

    def is_available() -> bool:
        if process.has_crashed:
            raise RuntimeError(f"{process.name} ended\n{process.log_tail()}")
        return any(each["type"] == "Available" and each["status"] == "True" for each in read_conditions())

    def read_conditions() -> Any:  # noqa: ANN401 - the conditions as JSON
        found = service.cluster.request_ok("GET", f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")
        return found.get("status", {}).get("conditions", [])

    service.cluster.wait_until(
        is_available, 60, what=lambda: f"{name} available: {read_conditions()}\n{process.log_tail()}"
    )


def _read_arguments(service: ScaledService, name: str, namespace: str) -> Sequence[str]:
    """As the API server holds them."""
    found = service.cluster.request_ok("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    (container,) = find_containers(found)
    return [str(each) for each in container["args"]]


def _write_configuration(service: ScaledService, folder: Path) -> Path:
    """What kubelet would mount of the ConfigMap, its window shortened."""
    found = service.cluster.request_ok("GET", f"/api/v1/namespaces/{MONITORING}/configmaps/{ADAPTER}")
    file = folder / "config.yaml"
    file.write_text(hasten(found["data"]["config.yaml"]))
    return file
