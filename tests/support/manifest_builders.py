"""Pods and cards of the suite, and the records read back: one builder each, so that no test pastes JSON."""

from __future__ import annotations

import json
from typing import Any

PODS = "/api/v1/namespaces/default/pods"
RESOURCE = "aliyun.com/gpu-mem"


def published_card(
    index: int, *, units: int = 15, memory_mib: int = 16130, uuid: str = "", **more: object
) -> dict[str, object]:
    """One card as an agent publishes it; 16130 MiB are 15 whole units of 1024."""
    card: dict[str, object] = {"uuid": uuid or f"GPU-{index}", "index": index, "model": "Tesla V100-SXM2-16GB"}
    return card | {"memory_mib": memory_mib, "units": units, "healthy": True, "numa": 0, "mig_parent": None} | more


def reference_env(container_name: str) -> dict[str, object]:
    """The entry of `env` by which admission wires a container to its annotation."""
    path = f"metadata.annotations['visible-devices.vrampack.dev/{container_name}']"
    return {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def cards_annotation(*published: dict[str, object], **more: object) -> str:
    """The Node annotation `vrampack.dev/cards`."""
    return json.dumps({"v": 1, "unit_mib": 1024, "injection": "exact", "devices": "uuid", "cards": published} | more)


def pod_manifest(name: str, units: int | str, *, scheduler: str = "vrampack", **metadata: object) -> dict[str, Any]:
    """A pod with one container that asks."""
    container = {"name": "main", "image": "example.com/cuda:1", "resources": {"limits": {RESOURCE: units}}}
    spec = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"name": name} | metadata, "spec": spec}


def read_allocation_record(pod: dict[str, Any]) -> Any:  # noqa: ANN401 - the record as JSON, asserted where it is read
    """The pod's own record, None without one."""
    text = pod["metadata"].get("annotations", {}).get("vrampack.dev/allocation")
    return None if text is None else json.loads(text)
