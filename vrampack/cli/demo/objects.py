"""The objects of the demo, as a user would apply them: nodes as their agents publish them, and workloads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from vrampack.cards import keys
from vrampack.cards.units import DEFAULT_UNIT_MIB, count_card_units
from vrampack.simulator.kinds import Object

NODE, NODE_ADDRESS = "cn-hangzhou.192.168.2.167", "192.168.2.167"
APP = "app-3g-v1"
LATECOMER = "app-late"
IMAGE = "registry.example.com/app:1"


@dataclass(frozen=True, slots=True)
class CardKind:
    """One model of card: its real memory, and the units it advertises."""

    model: str
    memory_mib: int

    @property
    def units(self) -> int:
        return count_card_units(self.memory_mib, DEFAULT_UNIT_MIB)


V100 = "Tesla-V100-SXM2-16GB"
V100_MIB = 16130


@dataclass(frozen=True, slots=True)
class Job:
    """Pods of one kind: `units` is all that one pod asks, over all its cards."""

    name: str
    replicas: int
    units: int
    cards: int = 1
    whole: bool = False


MIXED_NODES = {
    "gpu-t4": (CardKind("Tesla-T4", 15360),) * 4,
    "gpu-v100": (CardKind("Tesla-V100-16GB", 16384),) * 4,
    "gpu-3090": (CardKind("GeForce-RTX-3090", 24576),) * 4,
    "gpu-a100": (CardKind("A100-SXM4-80GB", 81920),) * 2,
}
MIXED_JOBS = (
    Job("llm-chat", 1, 48),
    Job("embed", 12, 3),
    Job("notebook", 1, 10, whole=True),
    Job("ocr", 8, 5),
    Job("train-pair", 1, 24, cards=2),
    Job("speech", 6, 7),
    Job("rerank", 8, 3),
    Job("vision", 4, 11),
)
"""41 pods; in the order in which a cluster that nobody plans would see them, large and small mixed."""


def node(name: str, address: str, cards: Sequence[CardKind]) -> Object:
    """A ready node with such cards. `injection: ids`: no admission policy runs here that would wire environments."""
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
    annotation = {"v": 1, "unit_mib": DEFAULT_UNIT_MIB, "injection": "ids", "devices": "uuid", "cards": published}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    amounts[keys.MEMORY_RESOURCE] = str(sum(card.units for card in cards))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {keys.NODE_CARDS: json.dumps(annotation, separators=(",", ":"))},
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0+embedded"},
        },
    }


def stateful_set(name: str, *, replicas: int, units: int) -> Object:
    """The founding workload: all pods at once, each limited to so many units."""
    spec = _spec(Job(name, replicas, units)) | {"podManagementPolicy": "Parallel", "serviceName": name}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}


def deployment(job: Job) -> Object:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": job.name}, "spec": _spec(job)}


def pod(name: str, *, units: int) -> Object:
    """One pod of its own."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": _pod_spec(units)}


def _spec(job: Job) -> Object:
    labels = {"app": job.name}
    asks = ({keys.COUNT_LABEL: str(job.cards)} if job.cards > 1 else {}) | (
        {keys.PLACEMENT_LABEL: keys.WHOLE_DEVICE} if job.whole else {}
    )
    return {
        "replicas": job.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels | asks}, "spec": _pod_spec(job.units)},
    }


def _pod_spec(units: int) -> Object:
    limits = {keys.MEMORY_RESOURCE: str(units)}
    return {
        "schedulerName": "vrampack",
        "containers": [{"name": "main", "image": IMAGE, "resources": {"limits": limits}}],
    }
