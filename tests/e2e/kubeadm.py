"""The other shape: the cluster's own scheduler calls the extender, as on control-plane hosts that kubeadm made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.control_plane.access_denials import KUBE_SCHEDULER
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifests import MANIFESTS, Json, load_rendered

ON_THE_HOST = MANIFESTS / "kubeadm" / "control-plane"
PATCH = ON_THE_HOST / "patches" / "kube-scheduler+json.yaml"
KUBECONFIG = "/etc/kubernetes/scheduler.conf"

STATIC_POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
    "spec": {
        "containers": [
            {
                "name": "kube-scheduler",
                "image": "registry.k8s.io/kube-scheduler:v1.36.3",
                "command": [
                    "kube-scheduler",
                    f"--authentication-kubeconfig={KUBECONFIG}",
                    f"--authorization-kubeconfig={KUBECONFIG}",
                    "--bind-address=127.0.0.1",
                    f"--kubeconfig={KUBECONFIG}",
                    "--leader-elect=true",
                ],
                "volumeMounts": [{"name": "kubeconfig", "mountPath": KUBECONFIG, "readOnly": True}],
            }
        ],
        "hostNetwork": True,
        "volumes": [{"name": "kubeconfig", "hostPath": {"path": KUBECONFIG, "type": "FileOrCreate"}}],
    },
}
"""What kubeadm 1.36 writes to /etc/kubernetes/manifests/kube-scheduler.yaml, as far as the patch touches it."""


@contextmanager
def with_kubeadm_shape(cluster: ControlPlane) -> Iterator[None]:
    """The cluster has this shape instead of the recommended one, which is back afterwards."""
    ours, usual = load_rendered("kubeadm"), load_rendered("second-scheduler")
    _delete(cluster, _without(usual, ours))
    try:
        cluster.kubectl("apply", "--warnings-as-errors", "-k", MANIFESTS / "kubeadm")
        yield
    finally:
        _delete(cluster, _without(ours, usual))
        cluster.install_manifests()


def patched_static_pod(cluster: ControlPlane) -> Json:
    """The static pod after kubeadm, or a person, has laid the shipped patch over it."""
    patch = ("--type=json", f"--patch-file={PATCH}")
    done = cluster.kubectl("patch", "--local", "-f", "-", *patch, "-o", "json", input=json.dumps(STATIC_POD))
    return json.loads(done.stdout)


def scheduler_options(cluster: ControlPlane) -> dict[str, object]:
    """How `in_cluster.start_scheduler` starts the patched pod's program: as its user, from the shipped file."""
    kubeconfig = str(cluster.certificate_kubeconfig(KUBE_SCHEDULER))
    (container,) = patched_static_pod(cluster)["spec"]["containers"]
    flags = [flag.replace(KUBECONFIG, kubeconfig) for flag in container["command"][1:]]
    configuration = (ON_THE_HOST / "scheduler.yaml").read_text()
    return {"flags": flags, "configuration": configuration.replace(KUBECONFIG, kubeconfig)}


def _without(items: Sequence[Json], others: Sequence[Json]) -> list[Json]:
    there = {_identity(item) for item in others}
    return [item for item in items if _identity(item) not in there]


def _identity(item: Json) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _delete(cluster: ControlPlane, items: list[Json]) -> None:
    whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=whole)
