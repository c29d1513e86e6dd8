"""Two nodes and the agent of the first, as a thief of its token would use it: RBAC allows it anything on Nodes, pods and Leases.

Whatever is refused there is refused by a policy.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from tests.support.admission.bench import MERGE, SYSTEM, ensure_object
from tests.support.admission.pods import admission_container, admission_pod
from tests.support.control_plane.cluster import ControlPlane, Json

AGENT = "vrampack-agent"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class AgentAdmissionBench:
    """Two nodes and the agent of the first. RBAC lets it do anything to any node."""

    cluster: ControlPlane
    own: str
    other: str
    token: str
    """Bound to a pod on the own node, as kubelet fetches it."""

    def patch(
        self, node: str, body: Json, *, subresource: str = "", token: str | None = None, content_type: str = MERGE
    ) -> int:
        path = f"/api/v1/nodes/{node}{subresource}"
        return self.cluster.request("PATCH", path, body, token=token or self.token, content_type=content_type)[0]

    def annotate(self, node: str, key: str, value: str | None, *, subresource: str = "") -> int:
        return self.patch(node, {"metadata": {"annotations": {key: value}}}, subresource=subresource)

    def read(self, node: str) -> Json:
        return self.cluster.request_ok("GET", f"/api/v1/nodes/{node}")


@contextmanager
def open_agent_bench(
    cluster: ControlPlane, account: str = AGENT, *, key: str = "vrampack.dev/cards"
) -> Iterator[AgentAdmissionBench]:
    """The account's pod runs where its namespace lets it; the right to all nodes is taken back afterwards.

    `key` is an annotation that it may write.
    """
    own, other = (_node(cluster) for _ in range(2))
    ensure_object(cluster, f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": account}})
    grants = _grant_all(cluster, account)
    pod = cluster.request_ok("POST", f"/api/v1/namespaces/{SYSTEM}/pods", an_agent_pod(own, account))["metadata"][
        "name"
    ]
    token = cluster.token(SYSTEM, account, pod=pod)
    made = AgentAdmissionBench(cluster, own, other, token)
    cluster.wait_until(lambda: made.annotate(own, key, new_value()) == HTTPStatus.OK, what="RBAC lets the account")
    try:
        yield made
    finally:
        of_pod = f"/api/v1/namespaces/{SYSTEM}/pods/{pod}"
        for path in (*grants, of_pod, f"/api/v1/nodes/{own}", f"/api/v1/nodes/{other}"):
            # A node may be gone: the garbage collector takes it with its owner.
            cluster.request("DELETE", path, {"gracePeriodSeconds": 0})


def new_value() -> str:
    """A new value each time: a write that changes nothing is not submitted to admission."""
    return secrets.token_hex(3)


def _node(cluster: ControlPlane) -> str:
    node = {"metadata": {"generateName": "node-", "annotations": {"example.com/there": "before"}}}
    return str(cluster.request_ok("POST", "/api/v1/nodes", node)["metadata"]["name"])


def an_agent_pod(node: str, account: str = AGENT) -> Json:
    """As restricted as the namespace wants its pods."""
    contexts = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return admission_pod(
        admission_container(securityContext=contexts),
        serviceAccountName=account,
        nodeName=node,
        securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    )


def _grant_all(cluster: ControlPlane, account: str) -> tuple[str, str]:
    name = "everything-about-nodes-and-pods"
    resources = ["nodes", "nodes/status", "pods", "pods/status", "leases", "events"]
    rule = {"apiGroups": ["", "coordination.k8s.io"], "resources": resources, "verbs": ["*"]}
    cluster.request_ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    bound = {
        "metadata": {"name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    }
    cluster.request_ok("POST", f"{RBAC}/clusterrolebindings", bound)
    return f"{RBAC}/clusterrolebindings/{name}", f"{RBAC}/clusterroles/{name}"
