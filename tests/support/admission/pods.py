"""What the admission tests create and expect: pods, records, and the environment that a container must end up with.

The environment is written out here by hand, not read from the policies: it is what kubelet and the runtimes rely on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.support.control_plane.cluster import Json

MEMORY = "aliyun.com/gpu-mem"
CARD = "GPU-00000000-0000-0000-0000-000000000001"
MIRROR = "kubernetes.io/config.mirror"

RECORDS = {
    "vrampack.dev/allocation": (
        f'{{"v":1,"cards":[{{"uuid":"{CARD}","index":0,"units":4,"whole":false}}],'
        f'"containers":{{"main":[{{"uuid":"{CARD}","units":4,"mib":4301}}]}}}}'
    ),
    "visible-devices.vrampack.dev/main": CARD,
    "limit-mib.vrampack.dev/main": "4301",  # floor(16130 * 4 / 15)
    "scheduler.framework.gpushare.allocation": '{"0":{"0":4}}',
    "ALIYUN_COM_GPU_MEM_IDX": "0",
    "ALIYUN_COM_GPU_MEM_POD": "4",
    "ALIYUN_COM_GPU_MEM_DEV": "15",
    "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000000",
}
"""One of each annotation that only the extender writes, as it would be for 4 of 15 units of card 0."""

GPUSHARE_V3 = "gpushare.alibabacloud.com/gpumemory"

PROTECTED = RECORDS | {GPUSHARE_V3: '{"0":{"0":4}}'}
"""The records, and one that nothing here writes: on a pod without ours it would be believed before all others."""

FROZEN_LABELS = ("aliyun.com/gpu-count", "ack.gpushare.placement")

GUARDED = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST", "CGPU_DISABLE")
GUARDED_PREFIX = "ALIYUN_COM_GPU_"
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
"""Guarded in a container that asks; any other may have it, for it sees no card."""

VOID = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
"""The environment of a container that asks for nothing, in a pod where another one does. So is an ephemeral one's."""


def admission_container(
    name: str = "main",
    *,
    units: int | str | None = None,
    env: Iterable[Json] = (),
    env_from: str | None = None,
    **fields: Json,
) -> Json:
    """A container asking for `units` of GPU memory; `env_from` names a ConfigMap."""
    container: Json = {"name": name, "image": "registry.invalid/none:1", **fields}
    if units is not None:
        container["resources"] = {"limits": {MEMORY: str(units)}}
    if env:
        container["env"] = list(env)
    if env_from:
        container["envFrom"] = [{"configMapRef": {"name": env_from}}]
    return container


def admission_pod(
    *containers: Json,
    init: Iterable[Json] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Json,
) -> Json:
    """A pod asking for 4 units in one container, unless told otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pod-", "annotations": dict(annotations or {}), "labels": dict(labels or {})},
        "spec": {
            "containers": list(containers) or [admission_container(units=4)],
            "initContainers": list(init),
            **spec,
        },
    }


def pod_with_asking_init_container() -> Json:
    """A pod asking for 4 units in an init container alone."""
    return admission_pod(admission_container(), init=[admission_container("init", units=4)])


def env_entry(name: str, value: str = "all") -> Json:
    return {"name": name, "value": value}


def env_by_annotation(name: str, annotation: str) -> Json:
    """An entry whose value comes from the pod's own annotation."""
    path = f"metadata.annotations['{annotation}']"
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def expected_environment(container: str, units: int) -> list[Json]:
    """What a container that asks must have, in any order."""
    return [
        {"name": "ALIYUN_COM_GPU_MEM_CONTAINER", "value": str(units)},
        {"name": CAPABILITIES, "value": "compute,utility"},
        env_by_annotation("NVIDIA_VISIBLE_DEVICES", f"visible-devices.vrampack.dev/{container}"),
        env_by_annotation("NVIDIA_GPU_MEMORY_LIMIT", f"limit-mib.vrampack.dev/{container}"),
        env_by_annotation("ALIYUN_COM_GPU_MEM_POD", "ALIYUN_COM_GPU_MEM_POD"),
        env_by_annotation("ALIYUN_COM_GPU_MEM_DEV", "ALIYUN_COM_GPU_MEM_DEV"),
        env_by_annotation("ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_IDX"),
    ]


def guarded_entries(container: Json) -> list[Json]:
    """The entries of a container that admission sets, in their order."""
    return [entry for entry in container.get("env", []) if is_guarded(entry["name"])]


def unguarded_entries(container: Json) -> list[Json]:
    """The entries that are the user's, in their order."""
    return [entry for entry in container.get("env", []) if not is_guarded(entry["name"])]


def is_guarded(name: str) -> bool:
    return name in (*GUARDED, CAPABILITIES) or name.startswith(GUARDED_PREFIX)


def has_exact_environment(pod: Json) -> bool:
    """Whether every container has each entry that the pod's asks call for once, and no other of ours."""
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
    return all(_sorted(guarded_entries(container)) == _sorted(_expected(container)) for container in containers)


def container_of(pod: Json, name: str) -> Json:
    everything = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
    return next(container for container in everything if container["name"] == name)


def _expected(container: Json) -> list[Json]:
    units = int(container.get("resources", {}).get("limits", {}).get(MEMORY, "0"))
    return expected_environment(container["name"], units) if units else VOID


def _sorted(entries: list[Json]) -> list[Json]:
    return sorted(entries, key=repr)
