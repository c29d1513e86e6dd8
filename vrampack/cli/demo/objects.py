"""The objects of the demo, as a user would apply them: nodes as their agents publish them, and workloads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from vrampack.cards import well_known
from vrampack.cards.units import DEFAULT_UNIT_MIB, count_card_units
from vrampack.simulator.resource_kinds import Object

NODE_NAME, NODE_ADDRESS = "cn-hangzhou.192.168.2.167", "192.168.2.167"
APP_NAME = "app-3g-v1"
LATE_POD = "app-late"
IMAGE = "registry.example.com/app:1"


@dataclass(frozen=True, slots=True)
class CardModel:
    """One model of card: its real memory, and the units it advertises."""

    model: str
    memory_mib: int

    @property
    def units(self) -> int:
        return count_card_units(self.memory_mib, DEFAULT_UNIT_MIB)


V100_MODEL = "Tesla-V100-SXM2-16GB"
V100_MIB = 16130


@dataclass(frozen=True, slots=True)
class DemoWorkload:
    """Pods of one kind: `units` is what one pod asks for on all its cards together."""

    name: str
    replicas: int
    units_per_pod: int
    cards_per_pod: int = 1
    is_whole: bool = False


MIXED_NODES = {
    "gpu-t4": (CardModel("Tesla-T4", 15360),) * 4,
    "gpu-v100": (CardModel("Tesla-V100-16GB", 16384),) * 4,
    "gpu-3090": (CardModel("GeForce-RTX-3090", 24576),) * 4,
    "gpu-a100": (CardModel("A100-SXM4-80GB", 81920),) * 2,
}
MIXED_WORKLOADS = (
    DemoWorkload("llm-chat", 1, 48),
    DemoWorkload("embed", 12, 3),
    DemoWorkload("notebook", 1, 15, is_whole=True),
    DemoWorkload("ocr", 8, 5),
    DemoWorkload("train-pair", 1, 24, cards_per_pod=2),
    DemoWorkload("speech", 6, 7),
    DemoWorkload("rerank", 8, 3),
    DemoWorkload("vision", 4, 11),
)
"""41 pods in an order as unplanned as in a real cluster, large and small ones mixed."""


def build_node_object(name: str, address: str, cards: Sequence[CardModel]) -> Object:
    """A ready node with these cards. `injection: cdi`, because no admission policy runs here that would set environments."""
    published = [
        {
            "uuid": f"GPU-{name}-{index}",
            "index": index,
            "model": card.model,
            "memory_mib": card.memory_mib,
            "units": card.units,
            "healthy": True,
        }
        for index, card in enumerate(cards)
    ]
    annotation = {"v": 1, "unit_mib": DEFAULT_UNIT_MIB, "injection": "cdi", "devices": "uuid", "cards": published}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    amounts[well_known.MEMORY_RESOURCE] = str(sum(card.units for card in cards))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {well_known.NODE_CARDS: json.dumps(annotation, separators=(",", ":"))},
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0+embedded"},
        },
    }


def build_stateful_set(name: str, *, replicas: int, units: int) -> Object:
    """The demo's app: all pods start at once, each limited to `units` units."""
    spec = _build_workload_spec(DemoWorkload(name, replicas, units)) | {
        "podManagementPolicy": "Parallel",
        "serviceName": name,
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}


def build_deployment(job: DemoWorkload) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": job.name},
        "spec": _build_workload_spec(job),
    }


def build_pod_object(name: str, *, units: int) -> Object:
    """One pod without a controller."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": _build_pod_spec(units)}


def _build_workload_spec(job: DemoWorkload) -> Object:
    labels = {"app": job.name}
    asks = ({well_known.COUNT_LABEL: str(job.cards_per_pod)} if job.cards_per_pod > 1 else {}) | (
        {well_known.PLACEMENT_LABEL: well_known.WHOLE_DEVICE} if job.is_whole else {}
    )
    return {
        "replicas": job.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels | asks}, "spec": _build_pod_spec(job.units_per_pod)},
    }


def _build_pod_spec(units: int) -> Object:
    limits = {well_known.MEMORY_RESOURCE: str(units)}
    return {
        "schedulerName": "vrampack",
        "containers": [{"name": "main", "image": IMAGE, "resources": {"limits": limits}}],
    }
