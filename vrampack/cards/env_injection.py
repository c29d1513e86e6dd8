"""How admission changes a pod that requests GPU memory: every container's environment, as a JSON patch.

The same transformation as the policies of `manifests/admission` (exact/environment-inject, exact/environment-ephemeral
and second-scheduler/scheduler-set), for API servers that cannot run those. Change both together: one table of tests
holds both to the same answers.

It removes variables, then sets them: the pod's own list is never trusted, and applying it twice changes nothing.
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
"""The units of one container; on a host without Kubernetes the container asks for its limit with it."""
DISABLE_VARIABLE = "CGPU_DISABLE"
GUARDED_VARIABLES = (VISIBLE_DEVICES_VARIABLE, "NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST", DISABLE_VARIABLE)
GUARDED_PREFIX = "ALIYUN_COM_GPU_"
"""The variables that decide what a container sees and may use: only set here."""
CAPABILITIES_VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
DEFAULT_CAPABILITIES = "compute,utility"
ALLOWED_CAPABILITIES = re.compile(r"(compute|utility|video)(,(compute|utility|video))*")
"""The capabilities that bring only libraries. `graphics`, `display` and `all` also bring /dev/dri, which no limit covers."""
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
NODES_GROUP = "system:nodes"
DEFAULT_SCHEDULER_NAMES = ("", "default-scheduler")
MAX_QUANTITY = 2**63 - 1
"""The largest quantity that the admission policies read as an integer; the API server refuses larger ones by itself."""

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
    """The scheduler set for pods that chose none; empty: they keep the default."""


def build_pod_patch(
    containers: Sequence[AdmissionContainer],
    init_containers: Sequence[AdmissionContainer],
    *,
    scheduler_name: str,
    names: InjectionNames,
) -> list[PatchOperation]:
    """The patch for a pod at creation; empty if it requests nothing. Raises `ValueError` for an invalid quantity."""
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
    """The patch for ephemeral containers that join a pod with a memory request. Those in `existing` can no longer change.

    One that sets the variable itself stays as it is: `vrampack-environment-guard` refuses it unless the value is void.
    """
    old = {container.name for container in existing}
    return [
        _build_add_operation(f"/spec/ephemeralContainers/{at}/env", [_hide_devices(), *container.env])
        for at, container in enumerate(ephemeral)
        if container.name not in old and all(_name(entry) != VISIBLE_DEVICES_VARIABLE for entry in container.env)
    ]


def has_memory_request(containers: Sequence[AdmissionContainer], names: InjectionNames) -> bool:
    """Whether any of them requests GPU memory. Raises `ValueError` for an invalid quantity."""
    return any(parse_quantity(_quantity(container, names)) > 0 for container in containers)


def is_mirror_pod(annotations: Mapping[str, str], groups: Sequence[str]) -> bool:
    """Whether it is a node's mirror of a static pod, which must stay as it is. Any user may write the annotation."""
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
    """The variables to add. Their values come later: the Binding writes them as annotations, where kubelet reads them."""
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
    """The container's last value if it is allowed, else the default, also for a value from another source (`valueFrom`)."""
    said = [entry.get("value") for entry in container.env if _name(entry) == CAPABILITIES_VARIABLE]
    last = said[-1] if said else None
    return last if isinstance(last, str) and ALLOWED_CAPABILITIES.fullmatch(last) else DEFAULT_CAPABILITIES


def _units(container: AdmissionContainer, names: InjectionNames) -> int:
    """The requested units. The API server itself refuses a quantity that is not a whole number later."""
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
    """`add` replaces an existing value and creates a missing one."""
    return {"op": "add", "path": path, "value": value}
