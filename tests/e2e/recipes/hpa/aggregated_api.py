"""Servers behind an APIService: run as their Deployment says, in the place where its pod would be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.e2e.recipes.hpa.scaled_service import ScaledService
from tests.support.manifests import find_containers
from tests.support.processes import ManagedProcess

HTTPS_PORT = 443
"""Of the Service: kube-proxy would lead from there to the pod's own port."""


def read_arguments(service: ScaledService, name: str, namespace: str) -> Sequence[str]:
    """Those of this Deployment's one container, as the API server holds them."""
    found = service.cluster.request_ok("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    (container,) = find_containers(found)
    return [str(each) for each in container["args"]]


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
