"""A real control plane on loopback: etcd, kube-apiserver and kube-controller-manager, with made-up nodes.

    with ControlPlane.start(tmp_path) as cluster:
        cluster.install_manifests()
        cluster.add_node("gpu-0", cards=json.dumps({...}))
        cluster.request("POST", "/api/v1/namespaces/default/pods", {...})

Calls act as cluster administrator unless they are given a token. No kubelet runs: a bound pod stays
Pending and is only deleted for good with `gracePeriodSeconds: 0`.
"""

from __future__ import annotations

import http.client
import json
import secrets
import select
import ssl
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from tests.support import node_manifests
from tests.support.certificates import CertificateAuthority
from tests.support.control_plane import access_denials, binaries, components
from tests.support.control_plane.cluster_reset import PRIORITIES, reset_cluster
from tests.support.manifest_builders import PODS, pod_manifest
from tests.support.manifests import MANIFESTS, load_objects, load_rendered, split_documents
from tests.support.polling import wait_until
from tests.support.processes import LOOPBACK, ManagedProcess, choose_free_ports

Json: TypeAlias = Any
"""Whatever the API server answered: tests read single fields of many kinds of objects, each asserted where it is read."""

T = TypeVar("T")

WORKLOADS = {"Deployment", "DaemonSet", "PodDisruptionBudget"}
"""What `reset` takes away after the first test; `test_install.py` applies them. No kubelet would run their pods."""
KUBECTL_TIMEOUT_SECONDS = 180
POLL_INTERVAL_SECONDS = 0.05
"""Most conditions ask the API server, which takes 10 ms of a processor for an answer."""
REQUEST_TIMEOUT_SECONDS = 30


class ControlPlane:
    """One control plane; see the module for how to use it. `stop` leaves no process behind."""

    def __init__(
        self,
        site: components.ControlPlaneSite,
        *,
        etcd_ports: tuple[int, int],
        controller_port: int,
        emulated_version: str | None = None,
        apiserver_flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
    ) -> None:
        self._site = site
        self._kubectl = site.binaries["kubectl"]
        self.api_host, self.api_port = LOOPBACK, site.api_port
        self.api_url = f"https://{LOOPBACK}:{site.api_port}"
        self.directory = site.directory
        self.authority = site.authority
        self.ca_file = site.authority.ca_file
        self.admin_token = site.admin_token
        self.admin_kubeconfig = self._write_kubeconfig("admin", {"token": site.admin_token})
        self.binaries = site.binaries
        self.refusals = access_denials.AccessDenialLog(components.audit_log(site))
        self.etcd = components.etcd(site, client_port=etcd_ports[0], peer_port=etcd_ports[1])
        self.apiserver = components.apiserver(
            site, etcd_port=etcd_ports[0], emulated_version=emulated_version, flags=apiserver_flags
        )
        self.controller_manager = components.controller_manager(
            site, port=controller_port, kubeconfig=self.admin_kubeconfig, flags=controller_flags
        )
        # Strict here as Python 3.13 is everywhere, so that a certificate it would refuse is seen today.
        self.tls = ssl.create_default_context(cafile=str(self.ca_file))
        self.tls.verify_flags |= ssl.VERIFY_X509_STRICT
        self._idle_connections: list[http.client.HTTPSConnection] = []
        self._accepted_documents: set[str] = set()

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        emulated_version: str | None = None,
        apiserver_flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
    ) -> Self:
        """A cluster that is ready for pods in namespace `default`; all its files lie in `directory`.

        With `emulated_version` its API server is an older one, as far as a newer one can emulate it.
        The flags are added to those of kube-apiserver and kube-controller-manager.
        """
        directory.mkdir(parents=True, exist_ok=True)
        api_port, client_port, peer_port, controller_port = choose_free_ports(4)
        site = components.ControlPlaneSite(
            binaries=binaries.locate_programs(),
            directory=directory,
            authority=CertificateAuthority(directory / "certificates"),
            api_port=api_port,
            admin_token=secrets.token_hex(16),
        )
        ports = (client_port, peer_port)
        cluster = cls(
            site,
            etcd_ports=ports,
            controller_port=controller_port,
            emulated_version=emulated_version,
            apiserver_flags=apiserver_flags,
            controller_flags=controller_flags,
        )
        try:
            cluster._boot()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def stop(self) -> None:
        """Kill everything: an orderly stop takes the API server 8 s and shows nothing about our code."""
        while self._idle_connections:
            self._idle_connections.pop().close()
        for process in self.processes:
            process.kill()

    @property
    def processes(self) -> Sequence[ManagedProcess]:
        return (self.controller_manager, self.apiserver, self.etcd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def request(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        token: str | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, Json]:
        """One call to the API server: the status, and the answer parsed (as text where it is not JSON)."""
        headers = {"Authorization": f"Bearer {token or self.admin_token}", "Content-Type": content_type}
        payload = None if body is None else json.dumps(body)
        connection = self._take_connection()
        try:
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            raw = answer.read()
        except BaseException:
            connection.close()
            raise
        self._idle_connections.append(connection)
        is_json = answer.getheader("Content-Type", "").startswith("application/json")
        return answer.status, json.loads(raw) if is_json else raw.decode()

    def request_ok(self, method: str, path: str, body: Json = None, *, content_type: str = "application/json") -> Json:
        """`request` as administrator where anything but success breaks the test's set-up."""
        status, answer = self.request(method, path, body, content_type=content_type)
        if status >= http.client.BAD_REQUEST:
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return answer

    def kubectl(
        self,
        *arguments: str | Path,
        input: str | None = None,  # noqa: A002 - named as in subprocess.run
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator, or as the user of `kubeconfig`; its output is captured as text."""
        options = [f"--kubeconfig={kubeconfig or self.admin_kubeconfig}", f"--cache-dir={self.directory / 'kubectl'}"]
        done = subprocess.run(
            [self._kubectl, *options, *arguments],
            input=input,
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT_SECONDS,
            check=False,
            env={"HOME": str(self.directory), "GOGC": "off"},  # it ends before a garbage collection would pay off
        )
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr}")
        return done

    def check_manifests(self, manifests: str) -> None:
        """A dry run of this YAML on the server, where an unknown field and a warning are errors.

        Raises `RuntimeError` with what kubectl says. A document that this server has accepted before is not sent again.
        """
        documents = split_documents(manifests)
        if not documents:
            raise ValueError("no document to check")
        unchecked = sorted(documents - self._accepted_documents)
        if unchecked:
            strictly = ("--warnings-as-errors", "--dry-run=server", "--validate=strict")
            self.kubectl("apply", *strictly, "-f", "-", input="---\n".join(unchecked))
        self._accepted_documents.update(unchecked)

    def token(self, namespace: str, service_account: str, *, pod: str | None = None, node: str | None = None) -> str:
        """A token as kubelet would fetch it; bound to a pod it names that pod's node too."""
        spec: dict[str, object] = {"expirationSeconds": 3600}
        if pod or node:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod" if pod else "Node", "name": pod or node}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        answer = self.request_ok(
            "POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        )
        return str(answer["status"]["token"])

    def kubeconfig(self, namespace: str, service_account: str, *, pod: str | None = None) -> Path:
        """A kubeconfig file with a fresh token of that account, bound to the pod if one is named."""
        return self._write_kubeconfig(
            f"{namespace}-{service_account}", {"token": self.token(namespace, service_account, pod=pod)}
        )

    def certificate_kubeconfig(self, user: str) -> Path:
        """A kubeconfig file with a certificate of that user, as kubeadm writes for the parts of a control plane."""
        pair = self.authority.issue_pair(user)
        shown = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        return self._write_kubeconfig(user.replace(":", "-"), shown)

    def add_node(
        self,
        name: str,
        *,
        cards: str | None = None,
        allocatable: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Json:
        """A schedulable node. `cards` is what the agent would write; without it, give a legacy plugin's `allocatable`."""
        node = node_manifests.gpu_node_manifest(
            name, cards=cards, allocatable=allocatable or {}, annotations=annotations or {}, labels=labels or {}
        )
        return self.request_ok("POST", "/api/v1/nodes", node)

    def namespace(self, prefix: str = "test", *, labels: Mapping[str, str] | None = None) -> str:
        """A new namespace that pods can be created in. Its name is new: a deleted one lingers for 5 s."""
        metadata = {"generateName": f"{prefix}-", "labels": dict(labels or {})}
        made = self.request_ok("POST", "/api/v1/namespaces", {"metadata": metadata})
        name = str(made["metadata"]["name"])
        self._wait_for_account(name)
        return name

    def add_priority_class(self, name: str, value: int, **fields: str) -> None:
        """A class that the next pod can name: admission reads classes from a cache, a moment behind what was written."""
        self.request_ok("POST", PRIORITIES, {"metadata": {"name": name}, "value": value, **fields})
        probe = pod_manifest(f"probe-{name}", 1)
        probe["spec"]["priorityClassName"] = name

        def is_admitted() -> bool:
            _, answer = self.request("POST", f"{PODS}?dryRun=All", probe)
            return bool(answer.get("spec", {}).get("priority") == value)

        self.wait_until(is_admitted, what=f"a pod of class {name} gets priority {value}")

    def wait_until(
        self,
        predicate: Callable[[], T],
        timeout_seconds: float = 10,
        *,
        what: str | Callable[[], str] = "",
        interval_seconds: float = POLL_INTERVAL_SECONDS,
    ) -> T:
        """The first true answer of `predicate`, or `TimeoutError`."""
        return wait_until(predicate, timeout_seconds=timeout_seconds, what=what, interval_seconds=interval_seconds)

    def install_manifests(self) -> None:
        """Apply the recommended install as it is rendered, with the policies for `exact` nodes, which these tests describe.

        A warning of the API server is a failure. Its pods are left out: tests start the two programs themselves (`in_cluster`).
        So is what changes pods that ask for nothing, which most tests have beside those that ask: `test_admission_void` has it.
        """
        void = load_objects(MANIFESTS / "admission" / "void")
        exact = [item for item in load_objects(MANIFESTS / "admission" / "exact") if item not in void]
        items = [item for item in (*load_rendered("second-scheduler"), *exact) if item["kind"] not in WORKLOADS]
        whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.kubectl("apply", "--warnings-as-errors", "-f", "-", input=whole)
        wait_until(self.admits_as_shipped, what="the admission policies are in force")

    def reset(self) -> None:
        """Delete what a test created: workloads, pods, nodes. Stop scheduler and extender before."""
        reset_cluster(self.request_ok)

    def _boot(self) -> None:
        # The API server waits for etcd by itself: started together, both are ready a second sooner.
        self.etcd.start()
        self.apiserver.start()
        self.apiserver.wait_ready(f"{self.api_url}/readyz", ca_file=self.ca_file)
        self.controller_manager.start()
        self._wait_for_account("default")

    def start_apiserver(self) -> None:
        """Start the API server that a test has ended, and the controller manager again.

        The controller manager's watches on the server that has gone would be retried after up to half a minute only.
        """
        self.controller_manager.kill()
        self.apiserver.start()
        self.apiserver.wait_ready(f"{self.api_url}/readyz", ca_file=self.ca_file)
        self.controller_manager.start()

    def admits_as_shipped(self) -> bool:
        """Whether the API server has loaded the policies, about a second after they were applied.

        Both kinds are asked of each folder: what changes a pod, and what refuses one.
        """
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        _, changed = self.request("POST", path, _a_probe("1"))
        spec = changed.get("spec", {})
        refused = [_a_probe("10G"), _a_probe("1", schedulerName="someone-else")]
        statuses = {self.request("POST", path, probe)[0] for probe in refused}
        is_changed = spec.get("schedulerName") == "vrampack" and "env" in spec["containers"][0]
        return is_changed and statuses == {http.client.UNPROCESSABLE_ENTITY}

    def _take_connection(self) -> http.client.HTTPSConnection:
        """One that the server has not closed, or a new one: tests poll, and a handshake costs more than most answers."""
        while self._idle_connections:
            found = self._idle_connections.pop()
            if found.sock and not select.select([found.sock], [], [], 0)[0]:
                return found
            found.close()
        return http.client.HTTPSConnection(
            self.api_host, self.api_port, timeout=REQUEST_TIMEOUT_SECONDS, context=self.tls
        )

    def _wait_for_account(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_until(lambda: self.request("GET", path)[0] == http.client.OK, timeout_seconds=20, what=path)

    def _write_kubeconfig(self, name: str, credentials: Mapping[str, str]) -> Path:
        """JSON, which every reader of kubeconfig takes as the YAML it is."""
        server = {"server": self.api_url, "certificate-authority": str(self.ca_file)}
        context = {"cluster": "e2e", "user": name}
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "e2e",
                    "clusters": [{"name": "e2e", "cluster": server}],
                    "contexts": [{"name": "e2e", "context": context}],
                    "users": [{"name": name, "user": dict(credentials)}],
                }
            )
        )
        return path


def _a_probe(units: str, **spec: str) -> dict[str, object]:
    container = {
        "name": "probe",
        "image": "example.com/probe:1",
        "resources": {"limits": {"aliyun.com/gpu-mem": units}},
    }
    return {"metadata": {"name": "probe"}, "spec": {"containers": [container], **spec}}
