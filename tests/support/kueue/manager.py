"""Kueue's manager beside a control plane: its manifests with the component of `docs/recipes/kueue`, under its own account.

Nothing runs its pod, so three things differ from an install, each with its reason in the code below: the addresses, who
mounts the certificate that it makes for its webhooks, and the aggregated API that shows queues.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import yaml

from tests.support.go_module import GoModule, locate_sources
from tests.support.manifests import SAFE_LOADER
from tests.support.polling import wait_until
from tests.support.processes import LOOPBACK, REPOSITORY, ManagedProcess, choose_free_ports

NAMESPACE, ACCOUNT = "kueue-system", "kueue-controller-manager"
SECRET = "kueue-webhook-server-cert"
WEBHOOK_SERVICE = "kueue-webhook-service"
RECIPE = REPOSITORY / "docs" / "recipes" / "kueue"
MODULE = Path(__file__).parent / "module"
PATH_OF_MODULE = "sigs.k8s.io/kueue"
READY_SECONDS = 60
GONE_SECONDS = 120
QUEUED = "kueue.x-k8s.io/managed=true"
"""Pods that Kueue holds."""


class Kubectl(Protocol):
    """kubectl as administrator; its output is text, and a failure raises."""

    def __call__(self, *arguments: str | Path, input: str | None = None) -> subprocess.CompletedProcess[str]: ...  # noqa: A002 - named as in subprocess.run


@dataclass(frozen=True, slots=True)
class KueueSite:
    """Where a manager runs: its folder, the cluster's kubectl, its account's kubeconfig, and where its webhooks are called."""

    directory: Path
    kubectl: Kubectl
    kubeconfig: Callable[[], Path]
    address: str = LOOPBACK
    is_called_by_endpoints: bool = False
    """Whether the API server looks up the endpoints of Services, else what an ExternalName says."""


def build_manager(environ: Mapping[str, str] = os.environ) -> Path:
    """The program, built once."""
    return GoModule(MODULE, "kueue", f"{PATH_OF_MODULE}/cmd").build_programs(environ, "kueue") / "kueue"


def render_install(site: KueueSite) -> list[Any]:
    """What `kubectl apply -k` would apply by the recipe: the objects of the release, and the recipe's component."""
    folder = site.directory / "install"
    folder.mkdir()
    released = locate_sources(MODULE, PATH_OF_MODULE, os.environ) / "config" / "default"
    resources = [os.path.relpath(released.resolve(), folder.resolve())]
    components = [os.path.relpath((RECIPE / "install").resolve(), folder.resolve())]
    (folder / "kustomization.yaml").write_text(json.dumps({"resources": resources, "components": components}))
    text = site.kubectl("kustomize", folder).stdout
    return [item for item in yaml.load_all(text, SAFE_LOADER) if item]


@contextmanager
def run_manager(site: KueueSite) -> Iterator[ManagedProcess]:
    """The install applied and its manager ready, its webhooks called.

    Pods that were queued, the webhooks and the program go with the block. Queues and definitions stay, and do nothing.
    """
    site.directory.mkdir()
    program = build_manager()
    webhook_port, health_port, metrics_port = choose_free_ports(3)
    objects = render_install(site)
    _apply(site, [made for item in objects if (made := _reachable(item, site, webhook_port))])
    certificates = site.directory / "certificates"
    certificates.mkdir()
    configuration = site.directory / "controller_manager_config.yaml"
    configuration.write_text(
        json.dumps(_on_this_machine(_configuration(objects), site, (webhook_port, health_port, metrics_port)))
    )
    process = ManagedProcess(
        "kueue",
        [program, f"--config={configuration}", "--zap-log-level=2"],
        directory=site.directory,
        environment={"KUBECONFIG": str(site.kubeconfig())},
    )
    process.start()
    try:
        _mount_certificate(site, certificates, process)
        process.wait_ready(f"http://{LOOPBACK}:{health_port}/readyz", timeout_seconds=READY_SECONDS)
        yield process
        if process.has_crashed:
            raise RuntimeError(f"kueue ended by itself\n{process.log_tail()}")
        if not process.is_running:  # the caller killed it
            process.start()
            process.wait_ready(f"http://{LOOPBACK}:{health_port}/readyz", timeout_seconds=READY_SECONDS)
        _remove_queued(site)
    finally:
        process.kill()
        _remove_webhooks(site)


def _configuration(objects: list[Any]) -> dict[str, Any]:
    (made,) = [item for item in objects if item["kind"] == "ConfigMap" and item["metadata"]["namespace"] == NAMESPACE]
    (text,) = made["data"].values()
    return dict(yaml.load(text, SAFE_LOADER))  # noqa: S506 - a safe loader, in C


def _on_this_machine(document: dict[str, Any], site: KueueSite, ports: tuple[int, int, int]) -> dict[str, Any]:
    """Addresses, and the folder of the certificate. Several may run on this machine, so ports are free ones.

    No lease: it is the only one, and a killed one's would hold up the next. No aggregated API: see `_reachable`.
    """
    webhook, health, metrics = ports
    document["webhook"] = {"host": site.address, "port": webhook, "certDir": str(site.directory / "certificates")}
    document["health"]["healthProbeBindAddress"] = f"{LOOPBACK}:{health}"
    document["metrics"]["bindAddress"] = f"{LOOPBACK}:{metrics}"
    document["leaderElection"] = {"leaderElect": False}
    document["featureGates"] = {"VisibilityOnDemand": False}
    return document


def _reachable(item: Any, site: KueueSite, port: int) -> Any:  # noqa: ANN401 - any kind of object
    """The object as it is applied; None for one that is left out.

    No kubelet runs the Deployment. An APIService without a server keeps every namespace from being deleted.
    """
    if item["kind"] in {"Deployment", "APIService"}:
        return None
    if item["kind"] == "Service" and item["metadata"]["name"] == WEBHOOK_SERVICE:
        return _service(item, site, port)
    if not site.is_called_by_endpoints:
        for client in _clients(item):
            client["service"]["port"] = port  # an ExternalName has no port of its own
    return item


def _service(item: Any, site: KueueSite, port: int) -> Any:  # noqa: ANN401 - any kind of object
    """No kube-proxy runs here, so the Service names the program's own address."""
    if not site.is_called_by_endpoints:
        return {**item, "spec": {"type": "ExternalName", "externalName": site.address}}
    ports = [{"port": 443, "protocol": "TCP", "targetPort": port}]
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": WEBHOOK_SERVICE,
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": WEBHOOK_SERVICE},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [site.address], "conditions": {"ready": True}}],
        "ports": [{"port": port, "protocol": "TCP"}],
    }
    return {"apiVersion": "v1", "kind": "List", "items": [{**item, "spec": {"ports": ports}}, endpoints]}


def _clients(item: Any) -> Iterator[Any]:  # noqa: ANN401 - any kind of object
    """The parts of the object that say how a webhook is called."""
    for webhook in item.get("webhooks", []):
        yield webhook["clientConfig"]
    conversion = item.get("spec", {}).get("conversion", {}) if item["kind"] == "CustomResourceDefinition" else {}
    if "webhook" in conversion:
        yield conversion["webhook"]["clientConfig"]


def _apply(site: KueueSite, items: list[Any]) -> None:
    """Namespace and definitions first, as kubectl orders what it applies of a kustomization. On the server's side: they are big."""
    flat = [each for item in items for each in (item["items"] if item["kind"] == "List" else [item])]
    first = {"Namespace", "CustomResourceDefinition"}
    for group in (
        [item for item in flat if item["kind"] in first],
        [item for item in flat if item["kind"] not in first],
    ):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": group})
        site.kubectl("apply", "--server-side", "-f", "-", input=text)


def _remove_queued(site: KueueSite) -> None:
    """Call it while the manager still runs, which releases the pods that it holds by finalizers."""
    for namespace in {
        each["metadata"]["namespace"] for each in _list_queued(site)
    }:  # kubectl asks for one pod at a time
        site.kubectl("delete", "--raw", f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(QUEUED)}")
    wait_until(lambda: not _list_queued(site), timeout_seconds=GONE_SECONDS, what="no pod of a queue is left")


def _list_queued(site: KueueSite) -> list[Any]:
    listed = site.kubectl("get", "pods", "--all-namespaces", "-l", QUEUED, "-o", "json").stdout
    return list(json.loads(listed)["items"])


def _remove_webhooks(site: KueueSite) -> None:
    """They fail closed: without their program no pod could be created."""
    for kind in ("mutating", "validating"):
        site.kubectl("delete", f"{kind}webhookconfiguration", f"kueue-{kind}-webhook-configuration")


def _mount_certificate(site: KueueSite, folder: Path, process: ManagedProcess) -> None:
    """As kubelet does with the Secret that the manager has filled."""

    def mounted() -> dict[str, str]:
        if not process.is_running:
            raise RuntimeError(f"kueue ended\n{process.log_tail()}")
        found = json.loads(site.kubectl("get", "secret", SECRET, "-n", NAMESPACE, "-o", "json").stdout)
        return dict(found.get("data", {}))

    data = wait_until(mounted, timeout_seconds=READY_SECONDS, what=lambda: f"a certificate\n{process.log_tail()}")
    for name, text in data.items():
        (folder / name).write_bytes(base64.b64decode(text))
