"""Nodes and pods of the pages: API objects, and the same counted without an API server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.builders import UNIT_MIB, ledger_pod
from tests.support.manifest_builders import cards_annotation, pod_manifest, published_card, reference_env
from tests.support.node_manifests import gpu_node_manifest
from vrampack.cards.node import CardFacts, NodeFacts, Share
from vrampack.cards.records import Record
from vrampack.cli.explain.cluster import ClusterListing, ExplainedCluster, ListedNode
from vrampack.cli.ui.cluster_reading import ClusterReading, build_reading
from vrampack.cli.ui.pod_scope import PodScope
from vrampack.kube.examined_objects import ExaminedNode

Object = dict[str, Any]  # Any: raw API objects


def a_node(name: str, cards: int = 2, *, cordoned: str = "") -> Object:
    """So many cards of 15 units, called `GPU-<node>-<index>`."""
    published = [published_card(at, uuid=f"GPU-{name}-{at}") for at in range(cards)]
    notes = {"vrampack.dev/cordoned-cards": cordoned} if cordoned else {}
    return gpu_node_manifest(name, cards=cards_annotation(*published), allocatable={}, annotations=notes, labels={})


def a_bound_pod(name: str, node: str, card: int, units: int, *, namespace: str = "default") -> Object:
    pod = _a_pod(name, units, namespace)
    held = [{"uuid": f"GPU-{node}-{card}", "index": card, "units": units}]
    pod["metadata"]["annotations"] = {"vrampack.dev/allocation": json.dumps({"v": 1, "cards": held})}
    pod["spec"]["nodeName"] = node
    return pod


def a_waiting_pod(name: str, units: int, *, namespace: str = "default", said: str = "") -> Object:
    pod = _a_pod(name, units, namespace)
    refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    pod["status"] = {"phase": "Pending", "conditions": [refusal] if said else []}
    return pod


def _a_pod(name: str, units: int, namespace: str) -> Object:
    metadata = {"namespace": namespace, "uid": f"{namespace}-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    pod = {"kind": "Pod", **pod_manifest(name, units, **metadata)}
    pod["spec"]["containers"][0]["env"] = [reference_env("main")]
    return pod


def a_reading(
    node_count: int,
    pods_by_card: Sequence[int],
    *,
    scope: PodScope = PodScope(),  # noqa: B008 - a frozen value
    name_length: int = 0,
) -> ClusterReading:
    """So many equal nodes; each card has 80 units and so many pods of one unit. Names are filled up to a length."""
    listing = ClusterListing()
    for number in range(node_count):
        node = f"gpu-{number:04}".ljust(name_length, "n")
        cards = tuple(
            CardFacts(at, 80, 80 * UNIT_MIB, f"GPU-{node}-{at}", model="NVIDIA A100-SXM4-80GB")
            for at in range(len(pods_by_card))
        )
        facts = NodeFacts(node, cards, unit_mib=UNIT_MIB)
        listing.nodes[node] = ListedNode(facts, ExaminedNode(), {"pods": 99}, None)
        for card, count in zip(cards, pods_by_card, strict=True):
            for at in range(count):
                name = f"app-{number}-{card.index}-{at}".ljust(name_length, "p")
                record = Record("vrampack", (Share(1, card.uuid, card.index),))
                listing.pods[name] = ledger_pod(name, units=1, node=node, record=record)
    return build_reading(ExplainedCluster(listing, UNIT_MIB), scope, {})
