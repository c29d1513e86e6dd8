"""The place where admission is attacked: a namespace, a tenant to which RBAC allows everything there, the extender.

Both accounts may write pods, every sub-resource of them and Bindings, so whatever is refused is refused by a policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from tests.support.admission.pods import CARD, MIRROR, RECORDS, admission_container, admission_pod, env_entry
from tests.support.control_plane.cluster import ControlPlane, Json

SYSTEM = "vrampack-system"
EXTENDER = "vrampack-extender"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
"""Lists are merged by name, as kubectl does."""
CARDS = json.dumps(
    {
        "v": 1,
        "unit_mib": 1024,
        "injection": "exact",
        "devices": "uuid",
        "cards": [
            {
                "uuid": CARD,
                "index": 0,
                "model": "T4",
                "memory_mib": 16130,
                "units": 15,
                "healthy": True,
                "numa": 0,
                "mig_parent": None,
            }
        ],
    }
)
EVERYTHING_ABOUT_PODS = {
    "apiGroups": [""],
    "resources": [
        "pods",
        "pods/status",
        "pods/binding",
        "bindings",
        "pods/ephemeralcontainers",
        "pods/resize",
        "configmaps",
    ],
    "verbs": ["get", "list", "create", "update", "patch", "delete"],
}


@dataclass(frozen=True, slots=True)
class AdmissionBench:
    """One namespace with its tenant. `create_pod` and `create_bound_pod` create the targets of attacks."""

    cluster: ControlPlane
    namespace: str
    node: str
    tenant: str
    """A token."""
    extender: str
    """A token."""

    @contextmanager
    def with_node(self) -> Iterator[None]:
        """The node exists during the block; afterwards no pod is left either."""
        self.cluster.add_node(self.node, cards=CARDS)
        try:
            yield
        finally:
            self.cluster.request_ok("DELETE", self.pods, {"gracePeriodSeconds": 0})
            self.cluster.request_ok("DELETE", f"/api/v1/nodes/{self.node}")

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def post_pod(self, pod: Json) -> tuple[int, Json]:
        return self.cluster.request("POST", self.pods, pod, token=self.tenant)

    def patch(self, name: str, body: Json, *, subresource: str = "", token: str | None = None) -> tuple[int, Json]:
        path = f"{self.pods}/{name}{subresource}"
        return self.cluster.request("PATCH", path, body, token=token or self.tenant, content_type=MERGE)

    def create_pod(self, pod: Json | None = None) -> str:
        """The name of a pod that the tenant made."""
        status, made = self.post_pod(pod or admission_pod())
        if status != HTTPStatus.CREATED:
            raise RuntimeError(f"the tenant's own pod: {status} {made}")
        return str(made["metadata"]["name"])

    def create_bound_pod(self, records: Mapping[str, str] = RECORDS, **metadata: Mapping[str, str]) -> str:
        """The name of a pod of the tenant that the extender bound, with its records."""
        name = self.create_pod(admission_pod(**metadata))
        status, answer = self.bind(name, annotations=records, token=self.extender)
        if status != HTTPStatus.CREATED:
            raise RuntimeError(f"the extender's own Binding: {status} {answer}")
        return name

    def bind(
        self,
        name: str,
        *,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        token: str | None = None,
        legacy: bool = False,
    ) -> tuple[int, Json]:
        """POST a Binding, by `pods/binding` or by the legacy `bindings`."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "annotations": dict(annotations or {}), "labels": dict(labels or {})},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        path = f"/api/v1/namespaces/{self.namespace}/bindings" if legacy else f"{self.pods}/{name}/binding"
        return self.cluster.request("POST", path, body, token=token or self.tenant)

    def as_kubelet(self, pod: Json) -> None:
        """Create a pod as the kubelet of this bench's node, which the Node authorizer lets do so."""
        who = (f"--as=system:node:{self.node}", "--as-group=system:nodes")
        self.cluster.kubectl("create", *who, "-f", "-", input=json.dumps(pod))

    def build_static_pod(self) -> Json:
        """The mirror pod by which this bench's kubelet reports a static pod that asks."""
        node = self.cluster.request_ok("GET", f"/api/v1/nodes/{self.node}")
        uid = node["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid, "controller": True}
        pod = admission_pod(
            admission_container(units=4, env=[env_entry("NVIDIA_VISIBLE_DEVICES", "0")]),
            annotations={MIRROR: "hash", "kubernetes.io/config.hash": "hash", "kubernetes.io/config.source": "file"},
            nodeName=self.node,
        )
        pod["metadata"] |= {"name": "static", "namespace": self.namespace, "ownerReferences": [owner]}
        del pod["metadata"]["generateName"]
        return pod

    def take_expected_refusals(self) -> None:
        """Refusals of the extender's account that a test provoked: each by a policy, none by RBAC."""
        refused = self.cluster.refusals.drain()
        if others := [refusal for refusal in refused if "ValidatingAdmissionPolicy" not in refusal.message]:
            raise RuntimeError(f"refused by something other than a policy: {others}")

    def add_debug_container(self, name: str, *containers: Json) -> tuple[int, Json]:
        """The tenant adds ephemeral containers to those that the pod has."""
        path = f"{self.pods}/{name}/ephemeralcontainers"
        body = {"spec": {"ephemeralContainers": list(containers)}}
        return self.cluster.request("PATCH", path, body, token=self.tenant, content_type=STRATEGIC)

    def add_ephemeral_container(self, name: str) -> list[Json]:
        return list(self.read_pod(name)["spec"].get("ephemeralContainers", []))

    def read_pod(self, name: str) -> Json:
        return self.cluster.request_ok("GET", f"{self.pods}/{name}")

    def annotations(self, name: str) -> dict[str, str]:
        return dict(self.read_pod(name)["metadata"].get("annotations", {}))

    def labels(self, name: str) -> dict[str, str]:
        return dict(self.read_pod(name)["metadata"].get("labels", {}))


def create_admission_bench(cluster: ControlPlane) -> AdmissionBench:
    """A fresh namespace and its accounts; `with_node` adds the node."""
    namespace = cluster.namespace("tenant")
    return AdmissionBench(
        cluster=cluster,
        namespace=namespace,
        node=f"node-of-{namespace}",
        tenant=_account(cluster, namespace, "tenant"),
        extender=_account(cluster, SYSTEM, EXTENDER, granted_in=namespace),
    )


@contextmanager
def open_admission_bench(cluster: ControlPlane) -> Iterator[AdmissionBench]:
    """A fresh namespace, its accounts and one node; no pod of it stays behind."""
    bench = create_admission_bench(cluster)
    with bench.with_node():
        yield bench


def ensure_object(cluster: ControlPlane, collection: str, made: Json) -> None:
    """Create an object unless one of that name exists."""
    status, answer = cluster.request("POST", collection, made)
    if status not in {HTTPStatus.CREATED, HTTPStatus.CONFLICT}:
        raise RuntimeError(f"{collection}: {status} {answer}")


def ensure_namespace(cluster: ControlPlane, name: str) -> None:
    """Ensure a namespace that accepts pods, whatever earlier tests left; a terminating one has to be gone first."""
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"

    def takes_pods() -> bool:
        status, found = cluster.request("GET", f"/api/v1/namespaces/{name}")
        if status == HTTPStatus.NOT_FOUND:
            ensure_object(cluster, "/api/v1/namespaces", {"metadata": {"name": name}})
            return False
        is_going = "deletionTimestamp" in found["metadata"]
        return not is_going and cluster.request("GET", account)[0] == HTTPStatus.OK

    cluster.wait_until(takes_pods, 60, what=f"namespace {name} takes pods")


def _account(cluster: ControlPlane, namespace: str, name: str, *, granted_in: str | None = None) -> str:
    """The token of an account that may do everything about pods in one namespace, and nothing elsewhere."""
    granted_in = granted_in or namespace
    ensure_object(cluster, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    ensure_object(cluster, f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{granted_in}"
    cluster.request_ok("POST", f"{rbac}/roles", {"metadata": {"name": name}, "rules": [EVERYTHING_ABOUT_PODS]})
    for role in ({"kind": "Role", "name": name}, {"kind": "ClusterRole", "name": "edit"}):
        granted = {
            "metadata": {"name": f"{name}-{role['name']}"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", **role},
        }
        cluster.request_ok("POST", f"{rbac}/rolebindings", granted)
    token = cluster.token(namespace, name)
    pods = f"/api/v1/namespaces/{granted_in}/pods"
    cluster.wait_until(
        lambda: cluster.request("DELETE", f"{pods}/nobody", token=token)[0] == HTTPStatus.NOT_FOUND,
        what=f"{name} may do everything about pods",
    )
    return token
