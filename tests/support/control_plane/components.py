"""The control plane's own programs on loopback, with the flags that a cluster without kubelets needs.

Authorization is Node and RBAC as everywhere, so that the shipped roles are put to the test. What differs
from a real cluster has its reason beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import CertificateAuthority
from tests.support.control_plane import access_denials
from tests.support.processes import LOOPBACK, ManagedProcess

CONTROLLERS = (
    # Controllers that create the pods of workloads, and those that delete.
    "statefulset-controller",
    "replicaset-controller",
    "deployment-controller",
    "daemonset-controller",
    "job-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    # Accounts, their root certificate, and aggregated roles.
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
    # Counts what a quota allows: without it the API server admits nothing that one covers.
    "resourcequota-controller",
    # Checks the expressions of admission policies and writes warnings into their status.
    "validatingadmissionpolicy-status-controller",
    # Not node-lifecycle: it would taint made-up nodes, which send no heartbeat, after a minute.
    # Not pod-garbage-collector: it would delete the pods of a node that a test lets vanish.
)


@dataclass(frozen=True, slots=True)
class ControlPlaneSite:
    """Where one cluster lives: its programs, folder, certificates and the credentials of its administrator."""

    binaries: Mapping[str, Path]
    directory: Path
    authority: CertificateAuthority
    api_port: int
    admin_token: str


CRITICAL_PODS_NEED_A_QUOTA = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AdmissionConfiguration",
    "plugins": [
        {
            "name": "ResourceQuota",
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "ResourceQuotaConfiguration",
                "limitedResources": [
                    {
                        "resource": "pods",
                        "matchScopes": [
                            {
                                "scopeName": "PriorityClass",
                                "operator": "In",
                                "values": ["system-node-critical", "system-cluster-critical"],
                            }
                        ],
                    }
                ],
            },
        }
    ],
}
"""Stricter than the default, as a managed cluster may be: what ships must work with both."""

SELDOM_COLLECTING = {"GOGC": "400"}
"""A seventh of the API server's time was the collection of garbage; this takes three quarters of that away, for some memory."""


def etcd(site: ControlPlaneSite, *, client_port: int, peer_port: int) -> ManagedProcess:
    client, peer = f"http://{LOOPBACK}:{client_port}", f"http://{LOOPBACK}:{peer_port}"
    command = [
        str(site.binaries["etcd"]),
        "--name=e2e",
        f"--data-dir={site.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=e2e={peer}",
        "--unsafe-no-fsync",  # nothing here must survive the machine, only the process
        "--log-level=warn",
    ]
    return ManagedProcess("etcd", command, directory=site.directory, environment=SELDOM_COLLECTING)


def apiserver(
    site: ControlPlaneSite, *, etcd_port: int, emulated_version: str | None = None, flags: Sequence[str] = ()
) -> ManagedProcess:
    """`emulated_version`: an older minor version, to whose kinds and CEL functions this server is then limited."""
    serving = site.authority.issue_pair("kube-apiserver")
    accounts = site.authority.issue_pair("service-accounts")
    front_proxy = site.authority.issue_pair("front-proxy-client")
    tokens = site.directory / "tokens.csv"
    tokens.write_text(f"{site.admin_token},admin,admin,system:masters\n")
    policy = site.directory / "audit-policy.json"
    policy.write_text(json.dumps(access_denials.AUDIT_POLICY))
    admission = site.directory / "admission.json"
    admission.write_text(json.dumps(CRITICAL_PODS_NEED_A_QUOTA))
    command = [
        str(site.binaries["kube-apiserver"]),
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={site.api_port}",
        "--endpoint-reconciler-type=none",  # a loopback address is refused as an endpoint
        "--service-cluster-ip-range=10.96.0.0/24",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={site.authority.ca_file}",
        # The identity with which it calls the servers of an APIService; these and the scheduler accept it as a front proxy.
        f"--proxy-client-cert-file={front_proxy.certificate}",
        f"--proxy-client-key-file={front_proxy.key}",
        f"--requestheader-client-ca-file={site.authority.ca_file}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--token-auth-file={tokens}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={accounts.certificate}",
        f"--service-account-signing-key-file={accounts.key}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--disable-admission-plugins=TaintNodesByCondition",  # it taints every made-up node as not ready
        f"--admission-control-config-file={admission}",
        "--allow-privileged=true",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={audit_log(site)}",
        "--audit-log-maxsize=4096",  # MiB; it is read from where the last test stopped, so it must not be rotated
    ]
    if emulated_version is not None:
        command.append(f"--emulated-version={emulated_version}")
    command += flags
    return ManagedProcess("kube-apiserver", command, directory=site.directory, environment=SELDOM_COLLECTING)


def controller_manager(
    site: ControlPlaneSite, *, port: int, kubeconfig: Path, flags: Sequence[str] = ()
) -> ManagedProcess:
    """`flags` come last: `--controllers` among them adds to ours."""
    serving = site.authority.issue_pair("kube-controller-manager")
    command = [
        str(site.binaries["kube-controller-manager"]),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--root-ca-file={site.authority.ca_file}",
        f"--controllers={','.join(CONTROLLERS)}",
        "--leader-elect=false",
        *flags,
    ]
    return ManagedProcess("kube-controller-manager", command, directory=site.directory, environment=SELDOM_COLLECTING)


def audit_log(site: ControlPlaneSite) -> Path:
    return site.directory / "audit.log"
