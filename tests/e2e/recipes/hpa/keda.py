"""KEDA's operator and metrics server as upstream's manifests install them.

Its admission webhooks are installed and not run: they fail open, and check what other ScaledObjects of a workload there are.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.recipes.hpa.aggregated_api import HTTPS_PORT, read_arguments, wait_until_served
from tests.e2e.recipes.hpa.programs import KEDA, locate_upstream
from tests.e2e.recipes.hpa.scaled_service import ScaledService
from tests.support.processes import LOOPBACK, ManagedProcess

NAMESPACE = "keda"
OPERATOR, METRICS_SERVER = "keda-operator", "keda-metrics-apiserver"
API = "v1beta1.external.metrics.k8s.io"
CERTIFICATES = f"/api/v1/namespaces/{NAMESPACE}/secrets/kedaorg-certs"
HEALTH_PORT = 8081
METRICS_SERVER_PORT = 8079
"""For its own metrics: it has 8080 for itself in its pod, and shares a network with the operator here."""


@contextmanager
def run_keda(service: ScaledService) -> Iterator[None]:
    """Both programs under their account, with the certificates that the operator makes; ready when the block begins."""
    cluster = service.cluster
    manifests = cluster.kubectl("kustomize", locate_upstream(KEDA) / "config" / "default").stdout
    cluster.kubectl("apply", "--server-side", "-f", "-", input=manifests)
    service.network.publish_service(OPERATOR, NAMESPACE)
    address = service.network.publish_service(METRICS_SERVER, NAMESPACE)
    folder = cluster.directory / NAMESPACE
    folder.mkdir()
    account = cluster.kubeconfig(NAMESPACE, OPERATOR)
    operator = _build_operator(service, folder, account)
    metrics_server = _build_metrics_server(service, folder, account, address)
    with ExitStack() as stack:
        stack.callback(operator.kill)
        _await_certificates(service, operator, folder)
        operator.start()  # it ended as soon as the certificates were there, for kubelet to start it again
        operator.wait_ready(f"http://{LOOPBACK}:{HEALTH_PORT}/readyz", timeout_seconds=60)
        stack.callback(metrics_server.kill)
        metrics_server.start()
        wait_until_served(service, API, metrics_server)
        yield


def _build_operator(service: ScaledService, folder: Path, account: Path) -> ManagedProcess:
    command: list[str | Path] = [
        service.programs.keda_operator,
        *read_arguments(service, OPERATOR, NAMESPACE),
        f"--cert-dir={folder}",
    ]
    return service.network.build_process(OPERATOR, command, environment=_environment(account))


def _build_metrics_server(service: ScaledService, folder: Path, account: Path, address: str) -> ManagedProcess:
    command: list[str | Path] = [
        service.programs.keda_metrics_server,
        *(each.replace("/certs", str(folder)) for each in read_arguments(service, METRICS_SERVER, NAMESPACE)),
        f"--bind-address={address}",
        f"--secure-port={HTTPS_PORT}",
        f"--port={METRICS_SERVER_PORT}",
        *(f"--{role}-kubeconfig={account}" for role in ("lister", "authentication", "authorization")),
    ]
    return service.network.build_process(METRICS_SERVER, command, environment=_environment(account))


def _environment(account: Path) -> dict[str, str]:
    """The account, which a pod has mounted with the name of its namespace, and what the Deployments set."""
    mounted = {"KUBECONFIG": str(account), "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE}
    return mounted | {"POD_NAMESPACE": NAMESPACE, "WATCH_NAMESPACE": ""}


def _await_certificates(service: ScaledService, operator: ManagedProcess, folder: Path) -> None:
    """Kubelet's part: what the operator's first start leaves in its Secret lies in the folder of both programs."""
    operator.start()
    code = operator.wait(timeout_seconds=60)
    if code:
        raise RuntimeError(f"{OPERATOR} ended with {code}\n{operator.log_tail()}")
    found = service.cluster.request_ok("GET", CERTIFICATES)
    for name, value in found["data"].items():
        (folder / name).write_bytes(base64.b64decode(value))
