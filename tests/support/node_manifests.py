"""Made-up nodes: what the API server would hold for a GPU node, without the node."""

from __future__ import annotations

import json
from collections.abc import Mapping

ORDINARY = {"cpu": "8", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}
"""Enough that only GPU memory ever decides, unless a test gives less."""


def gpu_node_manifest(
    name: str,
    *,
    cards: str | None,
    allocatable: Mapping[str, str],
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
) -> dict[str, object]:
    """A ready Node object: with `cards` as our agent publishes it, without as a legacy plugin leaves it."""
    resources = {**ORDINARY, **_advertised(cards), **allocatable}
    published = {} if cards is None else {"vrampack.dev/cards": cards}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
            "annotations": {**published, **annotations},
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "MadeUp", "message": "no kubelet runs here"}],
        },
    }


def _advertised(cards: str | None) -> dict[str, str]:
    """What kubelet would count: every unit of every healthy card is one device."""
    if cards is None:
        return {}
    units = sum(int(card["units"]) for card in json.loads(cards)["cards"] if card.get("healthy", True))
    return {"aliyun.com/gpu-mem": str(units)}
