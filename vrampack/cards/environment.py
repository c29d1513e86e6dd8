"""What admission makes of a pod that asks for GPU memory: every container's environment, as a JSON patch.

The same transformation as the policies of `manifests/admission` (environment-inject, environment-ephemeral and
scheduler-set), for API servers that cannot run those. Whoever changes one changes the other: one table of tests
holds both to the same answers.

Remove, then set: a list of the pod's own making is never trusted, and doing it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from vrampack.cards import keys
from vrampack.cards.units import parse_quantity

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
CONTAINER_UNITS = "ALIYUN_COM_GPU_MEM_CONTAINER"
"""The units of one container; on a host without Kubernetes it is what asks for a limit."""
DISABLE = "CGPU_DISABLE"
GUARDED = (VISIBLE_DEVICES, "NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST", DISABLE)
GUARDED_PREFIX = "ALIYUN_COM_GPU_"
"""What a container sees and may use: set here, by nobody else."""
MIRROR = "kubernetes.io/config.mirror"
NODES = "system:nodes"
CHOSE_NO_SCHEDULER = ("", "default-scheduler")
MAX_INTEGER = 2**63 - 1
"""The largest quantity that is an integer to the policies; the API server refuses larger ones by itself."""

Entry: TypeAlias = dict[str, object]
"""One entry of `env`; nothing of it is looked at but its name."""
Operation: TypeAlias = dict[str, object]
"""One step of a JSON patch (RFC 6902)."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Quantities by resource, as texts."""

    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Container:
    """A container of any kind, as far as admission looks at it."""

    name: str
    env: Sequence[Entry] = ()
    resources: Resources = Resources()


@dataclass(frozen=True, slots=True)
class Wiring:
    """What the cluster calls things."""

    resource: str = keys.MEMORY_RESOURCE
    scheduler_name: str = ""
    """Given to pods that chose no scheduler; empty: they keep theirs."""


def new_pod_patch(
    containers: Sequence[Container], init: Sequence[Container], *, scheduler_name: str, wiring: Wiring
) -> list[Operation]:
    """For a pod on creation. Empty for one that asks for nothing. Raises `ValueError` for what is no quantity."""
    if not asks([*containers, *init], wiring):
        return []
    made = [*_set("containers", containers, wiring), *_set("initContainers", init, wiring)]
    if wiring.scheduler_name and scheduler_name in CHOSE_NO_SCHEDULER:
        made.append(_add("/spec/schedulerName", wiring.scheduler_name))
    return made


def debugger_patch(ephemeral: Sequence[Container], before: Sequence[Container]) -> list[Operation]:
    """For ephemeral containers that join a pod that `asks`. Those that were there `before` nobody can change.

    One that names the variable itself stays as it is: `vrampack-environment-guard` refuses it unless it says void.
    """
    old = {container.name for container in before}
    return [
        _add(f"/spec/ephemeralContainers/{at}/env", [_void(), *container.env])
        for at, container in enumerate(ephemeral)
        if container.name not in old and all(_name(entry) != VISIBLE_DEVICES for entry in container.env)
    ]


def asks(containers: Sequence[Container], wiring: Wiring) -> bool:
    """Whether any of them asks for GPU memory. Raises `ValueError` for what is no quantity."""
    return any(parse_quantity(_quantity(container, wiring)) > 0 for container in containers)


def is_mirror(annotations: Mapping[str, str], groups: Sequence[str]) -> bool:
    """Whether a node reports a static pod, which must stay as it is. Anybody may write the annotation."""
    return MIRROR in annotations and NODES in groups


def _set(kind: str, containers: Sequence[Container], wiring: Wiring) -> Iterator[Operation]:
    for at, container in enumerate(containers):
        kept = [entry for entry in container.env if not _is_guarded(_name(entry))]
        # Ours go in front, so that the container's own entries may refer to them as $(NAME).
        yield _add(f"/spec/{kind}/{at}/env", [*_own(container, _units(container, wiring)), *kept])


def _own(container: Container, units: int) -> list[Entry]:
    """The values are not known yet: the Binding writes them into the pod's annotations, where kubelet reads them."""
    if not units:
        return [_void()]
    return [
        {"name": CONTAINER_UNITS, "value": str(units)},
        _from_annotation(VISIBLE_DEVICES, keys.VISIBLE_DEVICES_PREFIX + container.name),
        _from_annotation("NVIDIA_GPU_MEMORY_LIMIT", keys.LIMIT_MIB_PREFIX + container.name),
        *(_from_annotation(name, name) for name in (keys.GPUSHARE_POD, keys.GPUSHARE_DEV, keys.GPUSHARE_IDX)),
    ]


def _units(container: Container, wiring: Wiring) -> int:
    """A quantity that is no whole number is refused right after this, by the API server."""
    quantity = parse_quantity(_quantity(container, wiring))
    return quantity.numerator if quantity.denominator == 1 and 0 < quantity <= MAX_INTEGER else 0


def _quantity(container: Container, wiring: Wiring) -> str:
    resources = container.resources
    return resources.limits.get(wiring.resource) or resources.requests.get(wiring.resource) or "0"


def _name(entry: Entry) -> str:
    return str(entry.get("name", ""))


def _is_guarded(name: str) -> bool:
    return name in GUARDED or name.startswith(GUARDED_PREFIX)


def _from_annotation(name: str, annotation: str) -> Entry:
    path = f"metadata.annotations['{annotation}']"
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _void() -> Entry:
    return {"name": VISIBLE_DEVICES, "value": "void"}


def _add(path: str, value: object) -> Operation:
    """`add` replaces what is there and makes what is not."""
    return {"op": "add", "path": path, "value": value}
