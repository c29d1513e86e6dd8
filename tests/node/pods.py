"""Pods of this suite: they run, wait, and end when a test says so."""

from __future__ import annotations

from typing import Any

from tests.node.images import BUSYBOX_NAME, WAITS
from tests.support.manifests import MANIFESTS

RESOURCE = "aliyun.com/gpu-mem"
FOUNDING_EXAMPLE = MANIFESTS / "examples" / "statefulset.yaml"
"""The app of the founding story: two pods of 4 units."""
FOUNDING_APP = "app-3g-v1"
FOUNDING_PODS = (f"{FOUNDING_APP}-0", f"{FOUNDING_APP}-1")

VARIABLES = {
    "NVIDIA_VISIBLE_DEVICES": "visible-devices.vrampack.dev/{}",
    "NVIDIA_GPU_MEMORY_LIMIT": "limit-mib.vrampack.dev/{}",
    "ALIYUN_COM_GPU_MEM_POD": "ALIYUN_COM_GPU_MEM_POD",
    "ALIYUN_COM_GPU_MEM_DEV": "ALIYUN_COM_GPU_MEM_DEV",
    "ALIYUN_COM_GPU_MEM_IDX": "ALIYUN_COM_GPU_MEM_IDX",
}
"""Which annotation each variable of a container says, by the container's name."""


def a_pod(name: str, **units: int) -> dict[str, Any]:
    """A pod whose containers ask for so many units each: `a_pod("two", a=4, b=2)`; 0 asks for none."""
    made = [
        {"name": each, "image": BUSYBOX_NAME, "command": WAITS}
        | ({"resources": {"limits": {RESOURCE: asked}}} if asked else {})
        for each, asked in (units or {"main": 4}).items()
    ]
    spec = {"terminationGracePeriodSeconds": 1, "containers": made}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def a_set(name: str, **units: int) -> dict[str, Any]:
    """A StatefulSet of one such pod, `NAME-0`: one that fails is recreated, as in practice."""
    template = a_pod(name, **units)
    labels = {"name": name}
    spec = {
        "replicas": 1,
        "serviceName": name,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


def a_replica_set(name: str, replicas: int, **units: int) -> dict[str, Any]:
    """So many such pods at once, with names of the cluster's choice."""
    made = a_set(name, **units)
    del made["spec"]["serviceName"]
    return made | {"kind": "ReplicaSet", "spec": made["spec"] | {"replicas": replicas}}


def annotated(pod: dict[str, Any], container: str) -> dict[str, str]:
    """The environment that the pod's annotations name for this container."""
    annotations = pod["metadata"]["annotations"]
    return {name: annotations[key.format(container)] for name, key in VARIABLES.items()}


def with_init_containers(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with a plain init container and a sidecar, which ask for as much as its first container."""
    (first, *_) = pod["spec"]["containers"]
    ends = {**first, "name": "before", "command": ["sh", "-c", "exit 0"]}
    goes_on = {**first, "name": "beside", "restartPolicy": "Always"}
    pod["spec"]["initContainers"] = [ends, goes_on]
    return pod
