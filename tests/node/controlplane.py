"""etcd, API server, controller manager and the cluster's own scheduler, as on a node that carries its control plane.

Every controller runs, RBAC and the node authorizer decide, nothing of admission is switched off. The service address
of the API server is an address of the node, so that pods reach it without kube-proxy.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import CertificateAuthority
from tests.support.processes import LOOPBACK, ManagedProcess

NODE_NAME = "node"
NODE_ADDRESS = "10.99.0.1"
SERVICE_ADDRESS = "10.96.0.1"
SERVICE_RANGE = "10.96.0.0/24"
POD_RANGE = "10.88.0.0/16"
API_URL = f"https://{SERVICE_ADDRESS}"
NAMES = (
    *(f"IP:{address}" for address in (LOOPBACK, NODE_ADDRESS, SERVICE_ADDRESS)),
    *(f"DNS:{name}" for name in ("localhost", NODE_NAME, "kubernetes.default.svc")),
)


@dataclass(frozen=True, slots=True)
class NodeControlPlane:
    """The settings that its programs share."""

    directory: Path
    programs: Path
    logs: Path
    authority: CertificateAuthority
    emulated_version: str = ""
    """An older minor version of Kubernetes, whose kinds are all that its programs then know; empty: their own."""

    @classmethod
    def make(cls, directory: Path, programs: Path, logs: Path, *, emulated_version: str = "") -> NodeControlPlane:
        directory.mkdir()
        authority = CertificateAuthority(directory / "certificates", names=NAMES)
        return cls(directory, programs, logs, authority, emulated_version)

    def kubeconfig(self, user: str, *, group: str = "") -> Path:
        """Of a user with a certificate; JSON, which every reader of kubeconfig takes as the YAML it is."""
        path = self.directory / f"{user.replace(':', '-')}.kubeconfig"
        if not path.exists():
            pair = self.authority.issue_pair(user, organization=group)
            cluster = {"server": API_URL, "certificate-authority": str(self.authority.ca_file)}
            shown = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
            document = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "node",
                "clusters": [{"name": "node", "cluster": cluster}],
                "contexts": [{"name": "node", "context": {"cluster": "node", "user": user}}],
                "users": [{"name": user, "user": shown}],
            }
            path.write_text(json.dumps(document))
        return path

    def _emulation(self) -> list[str]:
        return [f"--emulated-version={self.emulated_version}"] if self.emulated_version else []

    @property
    def admin(self) -> Path:
        return self.kubeconfig("admin", group="system:masters")

    def etcd(self) -> ManagedProcess:
        client, peer = f"http://{LOOPBACK}:2379", f"http://{LOOPBACK}:2380"
        command: list[str | Path] = [
            self.programs / "etcd",
            "--name=node",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=node={peer}",
            "--unsafe-no-fsync",  # nothing here must survive the machine, only the process
            "--log-level=warn",
        ]
        return ManagedProcess("etcd", command, directory=self.logs)

    def apiserver(self) -> ManagedProcess:
        serving = self.authority.issue_pair("kube-apiserver")
        accounts = self.authority.issue_pair("service-accounts")
        caller = self.authority.issue_pair("kube-apiserver-kubelet-client", organization="system:masters")
        command: list[str | Path] = [
            self.programs / "kube-apiserver",
            f"--etcd-servers=http://{LOOPBACK}:2379",
            "--secure-port=443",
            f"--advertise-address={NODE_ADDRESS}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.authority.ca_file}",
            f"--requestheader-client-ca-file={self.authority.ca_file}",
            "--requestheader-allowed-names=front-proxy-client",
            f"--kubelet-certificate-authority={self.authority.ca_file}",
            f"--kubelet-client-certificate={caller.certificate}",
            f"--kubelet-client-key={caller.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts.certificate}",
            f"--service-account-signing-key-file={accounts.key}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            # Call webhooks at the addresses of their pods: nothing here translates those of Services.
            "--enable-aggregator-routing",
            *self._emulation(),
        ]
        return ManagedProcess("kube-apiserver", command, directory=self.logs)

    def controller_manager(self) -> ManagedProcess:
        accounts = self.directory / "certificates" / "service-accounts.key"
        command = [
            *self._client("kube-controller-manager", port=10257),
            "--use-service-account-credentials",
            f"--service-account-private-key-file={accounts}",
            f"--root-ca-file={self.authority.ca_file}",
            "--leader-elect=false",
        ]
        return ManagedProcess("kube-controller-manager", command, directory=self.logs)

    def scheduler(self) -> ManagedProcess:
        """The cluster's own, which places our pods. Ours, the second one, is a pod, and has 10259 there."""
        command = [*self._client("kube-scheduler", port=10258), "--leader-elect=false"]
        return ManagedProcess("kube-scheduler", command, directory=self.logs)

    def _client(self, name: str, *, port: int) -> list[str | Path]:
        kubeconfig = self.kubeconfig(f"system:{name}")
        serving = self.authority.issue_pair(f"{name}-{secrets.token_hex(4)}")
        return [
            self.programs / name,
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            *self._emulation(),
        ]
