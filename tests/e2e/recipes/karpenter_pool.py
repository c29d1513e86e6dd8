"""Nodes that a real Karpenter owns: it makes them for NodeClaims, and the test gives them cards and makes them Ready.

The pool consolidates nothing until `consolidate`, so that pods can be put on its nodes first.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.recipes.definitions import establish_definition
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.karpenter.autoscaler import RunningKarpenter, list_definitions, run_karpenter
from tests.support.manifest_builders import RESOURCE, cards_annotation, published_card
from tests.support.node_manifests import ORDINARY
from tests.support.processes import REPOSITORY
from vrampack.cards.well_known import ENFORCEMENT

TYPE = "g5.12xlarge"
CARDS_OF_A_NODE = 4
A10G_MIB, A10G_UNITS = 23028, 22
OFFERED = {RESOURCE: str(CARDS_OF_A_NODE * A10G_UNITS)}
OVERLAY = REPOSITORY / "docs" / "recipes" / "karpenter" / "nodeoverlay.yaml"
"""By which Karpenter knows it of the instance type."""
GATES = "NodeOverlay=true"
API = "/apis/karpenter.sh/v1"
POOL = "gpu"
OFFERING = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "test-zone-a"}
NODE_CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
NODES = "/api/v1/nodes"
SEAT = "seat"
"""The taint that keeps a node for the pods that are put on it first."""
CLAIM = "kubernetes.io/hostname"
"""The label of a node that has the name of its NodeClaim: the node's own name ends in a random number."""
MERGE = "application/merge-patch+json"
SINGLE_PASSES = re.compile(
    r'^karpenter_\w+_decision_evaluation_duration_seconds_count\{[^}]*"single"[^}]*\} (\d+)$', re.MULTILINE
)
"""Single-node consolidation is what a pass tries last, and only if nothing before it had something to do."""
PASSES = 2
ANSWER_SECONDS = 10
NODES_SECONDS = 60
SETTLED_SECONDS = 120
"""A pass comes every 10 s, and 15 s lie between a decision and its deed; most of the rest is for a busy machine."""


@dataclass(frozen=True, slots=True)
class KarpenterPool:
    """One NodePool of one instance type, whose totals Karpenter knows and whose cards it does not."""

    cluster: ControlPlane
    karpenter: RunningKarpenter

    def add_nodes(self, names: Sequence[str]) -> None:
        """Nodes with cards that only pods with a toleration for their own name may use, until `open_nodes`."""
        for name in names:
            self.cluster.request_ok("POST", f"{API}/nodeclaims", _claim(name))
        self.start_nodes(len(names))

    def start_nodes(self, count: int) -> None:
        """Do what kubelet and agent would do on so many nodes, as soon as Karpenter has made them."""
        made = self.cluster.wait_until(
            lambda: self._list_registered(count),
            NODES_SECONDS,
            what=lambda: f"{count} nodes\n{self.karpenter.process.log_tail()}",
        )
        for name, node in made.items():
            _publish_cards(self.cluster, name, node)

    def count_claims(self) -> int:
        """The nodes that Karpenter has made or is about to make."""
        return len(self.cluster.request_ok("GET", f"{API}/nodeclaims")["items"])

    def open_nodes(self) -> None:
        """Any pod may use all of them from now on; returns when Karpenter has taken all of them for complete."""
        for node in self.read_nodes().values():
            self._patch_node(node, {"spec": {"taints": None}})
        initialized = "karpenter.sh/initialized"
        self.cluster.wait_until(
            lambda: all(initialized in each["metadata"]["labels"] for each in self.read_nodes().values()),
            NODES_SECONDS,
            what=lambda: f"all nodes are initialized\n{self.karpenter.process.log_tail()}",
        )

    def consolidate(self) -> None:
        """Nodes whose pods fit on the others by totals go from now on, as many at a time as there are."""
        disruption = {"consolidateAfter": "1s"}
        path = f"{API}/nodepools/{POOL}"
        self.cluster.request_ok("PATCH", path, {"spec": {"disruption": disruption}}, content_type=MERGE)

    def wait_until_settled(self) -> None:
        """Until nodes have neither gone nor been marked to go for two whole passes of Karpenter over all nodes."""
        seen, since = self._list_states(), self._count_passes()

        def has_settled() -> bool:
            nonlocal seen, since
            found, passes = self._list_states(), self._count_passes()
            if found != seen:
                seen, since = found, passes
            return passes - since > PASSES  # one more: the first may have begun before

        self.cluster.wait_until(
            has_settled,
            SETTLED_SECONDS,
            what=lambda: f"no change after {seen}\n{self.karpenter.process.log_tail()}",
            interval_seconds=1,
        )

    def read_nodes(self) -> Mapping[str, Json]:
        """The nodes that there are, by the names of their claims."""
        found = self.cluster.request_ok("GET", NODES)["items"]
        return {node["metadata"]["labels"][CLAIM]: node for node in found}

    def _list_registered(self, count: int) -> Mapping[str, Json]:
        nodes = self.read_nodes()
        registered = "karpenter.sh/registered"
        is_complete = len(nodes) == count and all(registered in each["metadata"]["labels"] for each in nodes.values())
        return nodes if is_complete else {}

    def _list_states(self) -> Mapping[str, bool]:
        """Each node, and whether it is marked to go."""
        return {name: _is_disrupted(node) for name, node in self.read_nodes().items()}

    def _count_passes(self) -> int:
        with urllib.request.urlopen(self.karpenter.metrics_url, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - on loopback
            found = SINGLE_PASSES.search(answer.read().decode())
        return int(found[1]) if found else 0

    def _patch_node(self, node: Json, patch: Json) -> None:
        self.cluster.request_ok("PATCH", f"{NODES}/{node['metadata']['name']}", patch, content_type=MERGE)


@contextmanager
def run_pool(cluster: ControlPlane, directory: Path) -> Iterator[KarpenterPool]:
    """Karpenter with one NodePool without nodes. Whatever it owns goes with the block, and so do its kinds."""
    definitions = list_definitions()
    for file in definitions:
        establish_definition(cluster, file)
    for collection, item in _pool_objects().items():
        cluster.request_ok("POST", collection, item)
    cluster.kubectl("apply", "--validate=strict", "-f", OVERLAY)
    try:
        with run_karpenter(directory, cluster.admin_kubeconfig, [_instance_type()], gates=GATES) as karpenter:
            yield KarpenterPool(cluster, karpenter)
    finally:
        _disown_nodes(cluster)
        for file in definitions:
            cluster.kubectl("delete", "-f", file)


def _pool_objects() -> Mapping[str, Json]:
    """By the collection that each is created in."""
    template = {
        "nodeClassRef": NODE_CLASS,
        "expireAfter": "Never",
        "requirements": _requirements(),
    }
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "Never",
        "budgets": [{"nodes": "100%"}],
    }
    return {
        "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses": {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": NODE_CLASS["kind"],
            "metadata": {"name": NODE_CLASS["name"]},
        },
        f"{API}/nodepools": {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": POOL},
            "spec": {"template": {"spec": template}, "disruption": disruption},
        },
    }


def _instance_type() -> Mapping[str, object]:
    """The only one: nothing cheaper can replace several nodes."""
    return {
        "name": TYPE,
        "offerings": [{"Price": 1.0, "Available": True, "Requirements": _select(OFFERING)}],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": ORDINARY,
    }


def _claim(name: str) -> Json:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": POOL}},
        "spec": {
            "nodeClassRef": NODE_CLASS,
            "expireAfter": "Never",
            "requirements": _requirements(),
            "resources": {"requests": OFFERED},
            "taints": [{"key": SEAT, "value": name, "effect": "NoSchedule"}],
        },
    }


def _requirements() -> list[Json]:
    return _select({"node.kubernetes.io/instance-type": TYPE, "kubernetes.io/os": "linux", **OFFERING})


def _select(labels: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]


def _publish_cards(cluster: ControlPlane, name: str, node: Json) -> None:
    cards = [
        published_card(index, units=A10G_UNITS, memory_mib=A10G_MIB, uuid=f"GPU-{name}-{index}", model="NVIDIA A10G")
        for index in range(CARDS_OF_A_NODE)
    ]
    path = f"{NODES}/{node['metadata']['name']}"
    metadata = {"annotations": {"vrampack.dev/cards": cards_annotation(*cards)}, "labels": {ENFORCEMENT: "native"}}
    published = {"metadata": metadata}
    cluster.request_ok("PATCH", path, published, content_type=MERGE)
    ready = {"type": "Ready", "status": "True", "reason": "MadeUp", "message": "no kubelet runs here"}
    status = {"conditions": [ready], "capacity": OFFERED, "allocatable": OFFERED}
    cluster.request_ok("PATCH", f"{path}/status", {"status": status}, content_type=MERGE)


def _is_disrupted(node: Json) -> bool:
    taints = node["spec"].get("taints", [])
    return "deletionTimestamp" in node["metadata"] or any(each["key"] == "karpenter.sh/disrupted" for each in taints)


def _disown_nodes(cluster: ControlPlane) -> None:
    """Nodes outlive their claims, for the auditor; what Karpenter would wait for before it lets go of either is not waited for."""
    for collection in (NODES, f"{API}/nodeclaims"):
        for item in cluster.request_ok("GET", collection)["items"]:
            path = f"{collection}/{item['metadata']['name']}"
            released = {"metadata": {"finalizers": None, "ownerReferences": None}}
            cluster.request_ok("PATCH", path, released, content_type=MERGE)
