"""Pods as kubelet holds them: the API object, and the state of each container."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from vrampack.cards.well_known import (
    GPUSHARE_DEV,
    GPUSHARE_IDX,
    GPUSHARE_POD,
    LIMIT_MIB_PREFIX,
    MEMORY_RESOURCE,
    VISIBLE_DEVICES_PREFIX,
)

Json: TypeAlias = Any  # Any: raw API objects
Kind = Literal["init", "sidecar", "main"]


@dataclass(frozen=True, slots=True)
class KubeletContainer:
    """What kubelet reads of a container in a pod's spec."""

    name: str
    kind: Kind
    limits: Mapping[str, int]
    env: tuple[Json, ...]


@dataclass(slots=True)
class KubeletContainerState:
    """What became of a container; `waiting` is the reason and the message of a start that was refused."""

    container_id: str = ""
    is_running: bool = False
    restarts: int = 0
    waiting: tuple[str, str] | None = None
    started_at: str = ""
    """As in the container's status; empty where the status has none."""


class KubeletPod:
    """One pod of the node. Annotations may change under it, as an update from the API server changes them."""

    def __init__(self, spec: Json) -> None:
        self.spec: Json = copy.deepcopy(spec)
        self.phase = "Pending"
        self.reason = ""
        self.message = ""
        self.is_removed = False
        self.containers = tuple(_containers(self.spec["spec"]))
        """Init containers first, in the order in which kubelet allocates."""
        self.states = {container.name: KubeletContainerState() for container in self.containers}

    @property
    def uid(self) -> str:
        return str(self.spec["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.spec["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.spec["metadata"]["namespace"])

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.spec["metadata"].setdefault("annotations", {})
        return found

    @property
    def is_active(self) -> bool:
        return not self.is_removed and self.phase not in {"Failed", "Succeeded"}

    def container(self, name: str) -> KubeletContainer:
        return next(container for container in self.containers if container.name == name)

    def manifest(self) -> Json:
        """The API object with the status that kubelet would report."""
        status: Json = {"phase": self.phase, "reason": self.reason, "message": self.message}
        for key, kinds in (("containerStatuses", {"main"}), ("initContainerStatuses", {"init", "sidecar"})):
            named = [container.name for container in self.containers if container.kind in kinds]
            status[key] = [_status(name, self.states[name]) for name in named]
        return {**copy.deepcopy(self.spec), "status": status}


def kubelet_pod(
    name: str = "p",
    *,
    units: int | Mapping[str, int] = 4,
    init: Mapping[str, int] | None = None,
    sidecars: Iterable[str] = (),
    annotations: Mapping[str, str] | None = None,
    env: Iterable[Json] = (),
    has_references: bool = True,
    resource: str = MEMORY_RESOURCE,
    runtime_class: str = "",
) -> KubeletPod:
    """A pod of namespace `default`, by default with the environment that the admission policy gives it.

    `units` are the main containers (one, `main`, where it is a number) and `init` the init containers; those among
    `sidecars` are restartable. `env` is added to every container.
    """
    restartable = set(sidecars)
    mains = units if isinstance(units, Mapping) else {"main": units}

    def spec_of(container: str, asked: int) -> Json:
        ours = _references(container, asked) if has_references else []
        spec: Json = {"name": container, "resources": {}, "env": [*ours, *copy.deepcopy(list(env))]}
        if asked:
            spec["resources"] = {"limits": {resource: str(asked)}, "requests": {resource: str(asked)}}
        if container in restartable:
            spec["restartPolicy"] = "Always"
        return spec

    return KubeletPod(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "annotations": dict(annotations or {}),
            },
            "spec": ({"runtimeClassName": runtime_class} if runtime_class else {})
            | {
                "initContainers": [spec_of(*each) for each in (init or {}).items()],
                "containers": [spec_of(*each) for each in mains.items()],
            },
        }
    )


def _references(container: str, asked: int) -> list[Json]:
    """The same entries as `manifests/admission/exact/environment-inject.yaml` sets, in its order."""
    if not asked:
        return [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    fields = {
        "NVIDIA_VISIBLE_DEVICES": VISIBLE_DEVICES_PREFIX + container,
        "NVIDIA_GPU_MEMORY_LIMIT": LIMIT_MIB_PREFIX + container,
        GPUSHARE_POD: GPUSHARE_POD,
        GPUSHARE_DEV: GPUSHARE_DEV,
        GPUSHARE_IDX: GPUSHARE_IDX,
    }
    return [
        {"name": "ALIYUN_COM_GPU_MEM_CONTAINER", "value": str(asked)},
        *(
            {
                "name": name,
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}},
            }
            for name, key in fields.items()
        ),
    ]


def _containers(spec: Json) -> Iterable[KubeletContainer]:
    for raw in spec.get("initContainers") or []:
        yield _container(raw, "sidecar" if raw.get("restartPolicy") == "Always" else "init")
    for raw in spec["containers"]:
        yield _container(raw, "main")


def _container(raw: Json, kind: Kind) -> KubeletContainer:
    limits = (raw.get("resources") or {}).get("limits") or {}
    counted = {name: int(value) for name, value in limits.items() if "/" in name}
    return KubeletContainer(raw["name"], kind, counted, tuple(raw.get("env") or ()))


def _status(name: str, state: KubeletContainerState) -> Json:
    if state.is_running:
        now: Json = {"running": {"startedAt": state.started_at} if state.started_at else {}}
    elif state.waiting:
        now = {"waiting": {"reason": state.waiting[0], "message": state.waiting[1]}}
    elif state.container_id:
        now = {"terminated": {"containerID": state.container_id}}
    else:
        now = {"waiting": {"reason": "ContainerCreating"}}
    return {"name": name, "containerID": state.container_id, "restartCount": state.restarts, "state": now}
