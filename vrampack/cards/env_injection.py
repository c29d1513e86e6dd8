"""How admission changes a pod that requests GPU memory: every container's environment, as a JSON patch.

The same transformation as the policies of `manifests/admission` (exact/environment-inject, exact/environment-ephemeral
and second-scheduler/scheduler-set), for API servers that cannot run those. A change to one is a change to the other: one table of tests
holds both to the same answers.

Remove, then set: the pod's own list is never trusted, and doing it twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from vrampack.cards import well_known
from vrampack.cards.units import parse_quantity

VISIBLE_DEVICES_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
CONTAINER_UNITS_VARIABLE = "ALIYUN_COM_GPU_MEM_CONTAINER"
"""The units of one container; on a host without Kubernetes it is what asks for a limit."""
DISABLE_VARIABLE = "CGPU_DISABLE"
GUARDED_VARIABLES = (VISIBLE_DEVICES_VARIABLE, "NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST", DISABLE_VARIABLE)
GUARDED_PREFIX = "ALIYUN_COM_GPU_"
"""What a container sees and may use: set here and nowhere else."""
CAPABILITIES_VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
DEFAULT_CAPABILITIES = "compute,utility"
ALLOWED_CAPABILITIES = re.compile(r"(compute|utility|video)(,(compute|utility|video))*")
"""Those that bring libraries. `graphics`, `display` and `all` bring devices below /dev/dri too, which no limit covers."""
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
NODES_GROUP = "system:nodes"
DEFAULT_SCHEDULER_NAMES = ("", "default-scheduler")
MAX_QUANTITY = 2**63 - 1
"""The largest quantity that is an integer to the policies; the API server refuses larger ones by itself."""

EnvEntry: TypeAlias = dict[str, object]
"""One entry of `env`; only its name is read."""
PatchOperation: TypeAlias = dict[str, object]
"""One step of a JSON patch (RFC 6902)."""


@dataclass(frozen=True, slots=True)
class AdmissionResources:
    """Quantities by resource, as texts."""

    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdmissionContainer:
    """A container of any kind, as far as admission reads it."""

    name: str
    env: Sequence[EnvEntry] = ()
    resources: AdmissionResources = AdmissionResources()


@dataclass(frozen=True, slots=True)
class InjectionNames:
    """Names that the cluster's configuration chooses."""

    resource: str = well_known.MEMORY_RESOURCE
    scheduler_name: str = ""
    """Given to pods that chose no scheduler; empty: they keep theirs."""


def build_pod_patch(
    containers: Sequence[AdmissionContainer],
    init_containers: Sequence[AdmissionContainer],
    *,
    scheduler_name: str,
    names: InjectionNames,
) -> list[PatchOperation]:
    """For a pod on creation. Empty for one that requests nothing. Raises `ValueError` for what is no quantity."""
    if not has_memory_request([*containers, *init_containers], names):
        return []
    operations = [
        *_build_env_operations("containers", containers, names),
        *_build_env_operations("initContainers", init_containers, names),
    ]
    if names.scheduler_name and scheduler_name in DEFAULT_SCHEDULER_NAMES:
        operations.append(_build_add_operation("/spec/schedulerName", names.scheduler_name))
    return operations


def build_ephemeral_patch(
    ephemeral: Sequence[AdmissionContainer], existing: Sequence[AdmissionContainer]
) -> list[PatchOperation]:
    """For ephemeral containers that join a pod with a memory request. Those in `existing` cannot be changed any more.

    One that names the variable itself stays as it is: `vrampack-environment-guard` refuses it unless it says void.
    """
    old = {container.name for container in existing}
    return [
        _build_add_operation(f"/spec/ephemeralContainers/{at}/env", [_hide_devices(), *container.env])
        for at, container in enumerate(ephemeral)
        if container.name not in old and all(_name(entry) != VISIBLE_DEVICES_VARIABLE for entry in container.env)
    ]


def has_memory_request(containers: Sequence[AdmissionContainer], names: InjectionNames) -> bool:
    """Whether any of them requests GPU memory. Raises `ValueError` for what is no quantity."""
    return any(parse_quantity(_quantity(container, names)) > 0 for container in containers)


def is_mirror_pod(annotations: Mapping[str, str], groups: Sequence[str]) -> bool:
    """Whether a node reports a static pod, which must stay as it is. Any user may write the annotation."""
    return MIRROR_ANNOTATION in annotations and NODES_GROUP in groups


def _build_env_operations(
    kind: str, containers: Sequence[AdmissionContainer], names: InjectionNames
) -> Iterator[PatchOperation]:
    for at, container in enumerate(containers):
        units = _units(container, names)
        kept = [
            entry
            for entry in container.env
            if not _is_guarded(_name(entry)) and not (units and _name(entry) == CAPABILITIES_VARIABLE)
        ]
        # Ours go in front, so that the container's own entries may refer to them as $(NAME).
        yield _build_add_operation(f"/spec/{kind}/{at}/env", [*_build_injected_env(container, units), *kept])


def _build_injected_env(container: AdmissionContainer, units: int) -> list[EnvEntry]:
    """The values are not known yet: the Binding writes them into the pod's annotations, where kubelet reads them."""
    if not units:
        return [_hide_devices()]
    return [
        {"name": CONTAINER_UNITS_VARIABLE, "value": str(units)},
        {"name": CAPABILITIES_VARIABLE, "value": _choose_capabilities(container)},
        _from_annotation(VISIBLE_DEVICES_VARIABLE, well_known.VISIBLE_DEVICES_PREFIX + container.name),
        _from_annotation("NVIDIA_GPU_MEMORY_LIMIT", well_known.LIMIT_MIB_PREFIX + container.name),
        *(
            _from_annotation(name, name)
            for name in (well_known.GPUSHARE_POD, well_known.GPUSHARE_DEV, well_known.GPUSHARE_IDX)
        ),
    ]


def _choose_capabilities(container: AdmissionContainer) -> str:
    """What the container says last, as far as it may. A value that is read from elsewhere is not known yet."""
    said = [entry.get("value") for entry in container.env if _name(entry) == CAPABILITIES_VARIABLE]
    last = said[-1] if said else None
    return last if isinstance(last, str) and ALLOWED_CAPABILITIES.fullmatch(last) else DEFAULT_CAPABILITIES


def _units(container: AdmissionContainer, names: InjectionNames) -> int:
    """A quantity that is no whole number is refused right after this, by the API server."""
    quantity = parse_quantity(_quantity(container, names))
    return quantity.numerator if quantity.denominator == 1 and 0 < quantity <= MAX_QUANTITY else 0


def _quantity(container: AdmissionContainer, names: InjectionNames) -> str:
    resources = container.resources
    return resources.limits.get(names.resource) or resources.requests.get(names.resource) or "0"


def _name(entry: EnvEntry) -> str:
    return str(entry.get("name", ""))


def _is_guarded(name: str) -> bool:
    return name in GUARDED_VARIABLES or name.startswith(GUARDED_PREFIX)


def _from_annotation(name: str, annotation: str) -> EnvEntry:
    path = f"metadata.annotations['{annotation}']"
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _hide_devices() -> EnvEntry:
    return {"name": VISIBLE_DEVICES_VARIABLE, "value": "void"}


def _build_add_operation(path: str, value: object) -> PatchOperation:
    """`add` replaces a value that is there and creates one that is not."""
    return {"op": "add", "path": path, "value": value}
