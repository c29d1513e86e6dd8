"""The two forms of the mutations: policies, as the install for 1.36 has them, and the webhook of `manifests/webhook`.

The webhook is installed as it ships, in place of the mutating policies, and answered over TLS by `vrampack admission` with a
certificate that `vrampack certificates` made under its own account. What differs has its reason beside it.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

import yaml

from tests.e2e.render import render_manifests
from tests.support.admission.pods import admission_pod
from tests.support.admission.policies import (
    EXACT,
    ON_EXACT,
    SECOND_SCHEDULER,
    Edit,
    with_validation_switched_off,
    with_weakened_policies,
)
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifests import MANIFESTS, load_objects, load_rendered
from tests.support.processes import LOOPBACK, REPOSITORY, ManagedProcess, choose_free_ports

SHAPE = MANIFESTS / "webhook" / "second-scheduler"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/vrampack-environment"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/vrampack-admission"
MUTATING = ("vrampack-environment-inject", "vrampack-environment-ephemeral", "vrampack-scheduler-set")
"""The first two stand for the rules of the webhook, in its order."""
PORT = 12348
MOUNTED = "/etc/vrampack/admission/certificate"
WORKLOADS = {"Deployment", "PodDisruptionBudget", "Job", "CronJob"}
"""Nothing runs pods here."""


class WebhookForm(Protocol):
    """What makes the environment of containers."""

    def without(self, *names: str) -> AbstractContextManager[None]:
        """These policies, or what stands in for them, are switched off inside; soon in force again afterwards."""


@dataclass(frozen=True, slots=True)
class PolicyForm:
    """As shipped for 1.36: nothing to do."""

    cluster: ControlPlane

    def without(self, *names: str) -> AbstractContextManager[None]:
        return with_weakened_policies(self.cluster, ON_EXACT, dict.fromkeys(names, with_validation_switched_off))


@dataclass(slots=True)
class WebhookInstallForm:
    """The webhook in force. `folder` is what kubelet would mount of the Secret."""

    cluster: ControlPlane
    folder: Path
    configuration: Path
    process: ManagedProcess = field(init=False)
    health_url: str = field(init=False)

    @contextmanager
    def without(self, *names: str) -> Iterator[None]:
        guards: dict[str, Edit] = dict.fromkeys(
            (name for name in names if name not in MUTATING), with_validation_switched_off
        )
        # A pod that is not wired is given no scheduler either: the webhook does both.
        schedulers: dict[str, Edit] = (
            {"vrampack-scheduler-guard": with_validation_switched_off} if "vrampack-environment-inject" in names else {}
        )
        shipped = self.cluster.request_ok("GET", CONFIGURATION)["webhooks"][0]["rules"]
        self._look_at([rule for rule, policy in zip(shipped, MUTATING, strict=False) if policy not in names])
        try:
            with (
                with_weakened_policies(self.cluster, SECOND_SCHEDULER, schedulers),
                with_weakened_policies(self.cluster, ON_EXACT, guards),
            ):
                yield
        finally:
            self._look_at(shipped)

    def start(self, *, wait: bool = True) -> None:
        """The program with what is mounted now, and without any account; `wait` until it answers the API server."""
        (port,) = choose_free_ports(1)
        self.health_url = f"http://{LOOPBACK}:{port}"
        listeners = ("--listen", f"{LOOPBACK}:{PORT}", "--health-listen", f"{LOOPBACK}:{port}")
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "vrampack.cli",
            "admission",
            "--config",
            self.configuration,
            *listeners,
        ]
        self.process = ManagedProcess(f"admission-{port}", command, directory=self.cluster.directory)
        self.process.start()
        self.process.wait_ready(f"{self.health_url}/readyz")
        if wait:
            self.cluster.wait_until(self.cluster.admits_as_shipped, what="the webhook answers")

    def renew(self, *flags: str) -> str:
        """`vrampack certificates` once, under the shipped account; its output."""
        kubeconfig = self.cluster.kubeconfig(NAMESPACE, "vrampack-certificates")
        command = [sys.executable, "-m", "vrampack.cli", "certificates", "--kubeconfig", str(kubeconfig), *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=REPOSITORY)
        if done.returncode:
            raise RuntimeError(f"vrampack certificates: {done.stderr}")
        return done.stdout

    def secret(self) -> dict[str, bytes]:
        data = self.cluster.request_ok("GET", SECRET)["data"]
        return {name: base64.b64decode(text) for name, text in data.items()}

    def mount(self, files: dict[str, bytes] | None = None) -> None:
        """As kubelet does: a new folder, and a link to it that is swapped."""
        content = files or self.secret()
        fresh = self.folder / f"..{len(list(self.folder.iterdir()))}"
        fresh.mkdir()
        for name in ("tls.crt", "tls.key"):
            (fresh / name).write_bytes(content[name])
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)
        swapped = self.folder / "..data_tmp"
        swapped.symlink_to(fresh.name)
        swapped.replace(self.folder / "..data")

    def _look_at(self, rules: list[Json]) -> None:
        patch = [{"op": "replace", "path": "/webhooks/0/rules", "value": rules}]
        self.cluster.request_ok("PATCH", CONFIGURATION, patch, content_type="application/json-patch+json")


@contextmanager
def with_installed_form(cluster: ControlPlane, folder: Path) -> Iterator[WebhookInstallForm]:
    """The webhook instead of the mutating policies; afterwards those are in force again."""
    try:
        cluster.kubectl("delete", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", *MUTATING)
        cluster.wait_until(
            lambda: _creates(cluster) == HTTPStatus.UNPROCESSABLE_ENTITY, what="the mutating policies are off"
        )
        with with_applied_objects(cluster, folder) as made:
            yield made
    finally:
        ours = {_identity(item) for item in (*load_rendered("second-scheduler"), *load_objects(EXACT))}
        extra = [item for item in _objects() if _identity(item) not in ours]
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=_list(extra))
        cluster.request("DELETE", SECRET)
        cluster.install_manifests()


@contextmanager
def with_applied_objects(cluster: ControlPlane, folder: Path) -> Iterator[WebhookInstallForm]:
    """The shape applied as it ships, its certificate made and the program started; it ends with the block."""
    cluster.kubectl("apply", "--warnings-as-errors", "-f", "-", input=_list(_objects()))
    (text,) = [item["data"]["admission.yaml"] for item in _objects() if "admission.yaml" in item.get("data", {})]
    configuration = cluster.directory / "admission.yaml"
    configuration.write_text(text.replace(MOUNTED, str(folder)))
    made = WebhookInstallForm(cluster, folder, configuration)
    made.renew()
    made.mount()
    try:
        made.start()
        yield made
    finally:
        if hasattr(made, "process"):
            made.process.kill()


def _objects() -> list[Json]:
    items = yaml.safe_load_all(render_manifests(SHAPE))
    return [_reachable(item) for item in items if item["kind"] not in WORKLOADS]


def _list(items: list[Json]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _reachable(item: Json) -> Json:
    """No kube-proxy runs here, so the Service names the program's own address; its name and port are as shipped."""
    if item["kind"] != "Service" or item["metadata"]["name"] != "vrampack-admission":
        return item
    return {**item, "spec": {"type": "ExternalName", "externalName": LOOPBACK}}


def _identity(item: Json) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _creates(cluster: ControlPlane) -> int:
    return cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", admission_pod())[0]
