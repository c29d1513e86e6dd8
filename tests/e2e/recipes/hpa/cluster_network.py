"""What kube-proxy and cluster DNS do, as far as these programs need it: all of them run in one network namespace.

A Service's own address is on loopback, its program listens there, and programs find names in a hosts file.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Network, ip_address
from pathlib import Path

from tests.support.control_plane.cluster import ControlPlane
from tests.support.processes import LOOPBACK, ManagedProcess

SERVICE_ADDRESSES = "10.96.0.0/24"
"""The API server's `--service-cluster-ip-range`."""
POD_ADDRESS = "10.244.0.1"
"""Of no pod. The API server refuses loopback in an EndpointSlice, and asks this address nothing."""
ENTER = 'mount --bind "$0" /etc/hosts && exec setpriv --pdeathsig KILL -- "$@"'


def has_own_network() -> bool:
    """Whether this is the namespace that `python -m tests.e2e.recipes.hpa` makes, in which nothing but loopback is."""
    with socket.socket() as probe, suppress(OSError):
        probe.bind((str(IPv4Network(SERVICE_ADDRESSES)[1]), 0))
        return [name for _, name in socket.if_nameindex()] == ["lo"]
    return False


class ClusterNetwork:
    """Names and addresses of one cluster's Services."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._hosts: dict[str, str] = {"localhost": LOOPBACK}
        self._file = cluster.directory / "hosts"

    def add_name(self, service: str, namespace: str, address: str) -> None:
        for name in (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local"):
            self._hosts[name] = address
        self._file.write_text("".join(f"{address}\t{name}\n" for name, address in self._hosts.items()))

    def publish_service(self, service: str, namespace: str) -> str:
        """The address of this Service, on which its program has to listen; from now on it has an endpoint."""
        found = self._cluster.request_ok("GET", f"/api/v1/namespaces/{namespace}/services/{service}")
        ports = [{"name": port["name"], "port": port["port"], "protocol": "TCP"} for port in found["spec"]["ports"]]
        endpoints = {
            "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [POD_ADDRESS], "conditions": {"ready": True}}],
            "ports": ports,
        }
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._cluster.request_ok("POST", path, endpoints)
        address = str(ip_address(found["spec"]["clusterIP"]))
        self.add_name(service, namespace, address)
        return address

    def build_process(
        self, name: str, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None
    ) -> ManagedProcess:
        """A program, not yet started, that finds these names. Its root is the machine's, its mounts its own."""
        private: list[str | Path] = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, self._file]
        return ManagedProcess(name, [*private, *command], directory=self._cluster.directory, environment=environment)
