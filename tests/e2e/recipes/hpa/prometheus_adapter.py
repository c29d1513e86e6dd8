"""prometheus-adapter as the recipe installs it, in fast time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.recipes.hpa.aggregated_api import HTTPS_PORT, read_arguments, wait_until_served
from tests.e2e.recipes.hpa.fast_time import hasten, shorten
from tests.e2e.recipes.hpa.scaled_service import RECIPE, ScaledService
from tests.support.processes import ManagedProcess

NAMESPACE = "monitoring"
NAME = "prometheus-adapter"
API = "v1beta2.custom.metrics.k8s.io"
RELIST = "--metrics-relist-interval="


@contextmanager
def run_prometheus_adapter(service: ScaledService) -> Iterator[ManagedProcess]:
    """The recipe's objects as they stand; the program under its own account, behind its Service."""
    cluster = service.cluster
    cluster.kubectl("apply", "--warnings-as-errors", "-f", RECIPE / "prometheus-adapter.yaml")
    address = service.network.publish_service(NAME, NAMESPACE)
    account = cluster.kubeconfig(NAMESPACE, NAME)
    folder = cluster.directory / NAME
    folder.mkdir()
    arguments = read_arguments(service, NAME, NAMESPACE)
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
    process = service.network.build_process(NAME, command)
    process.start()
    try:
        wait_until_served(service, API, process)
        yield process
    finally:
        process.kill()


def _write_configuration(service: ScaledService, folder: Path) -> Path:
    """What kubelet would mount of the ConfigMap, its window shortened."""
    found = service.cluster.request_ok("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")
    file = folder / "config.yaml"
    file.write_text(hasten(found["data"]["config.yaml"]))
    return file
