"""What a pod asks of a node and what a node has, in the scheduler's own whole numbers (cpu in thousandths).

The formula is the scheduler's: main containers run together, init containers one after another before them, and
a sidecar (an init container with `restartPolicy: Always`) from its turn on until the end.
https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from vrampack.cards.units import parse_quantity
from vrampack.simulator.resource_kinds import Object

Amounts: TypeAlias = Mapping[str, int]

CPU, PODS = "cpu", "pods"


@dataclass(frozen=True, slots=True)
class NodeResources:
    """What a node has, and how much its pods take; they may take more than it has, as allocatable can shrink."""

    allocatable: Amounts
    used: Amounts

    def free_amount(self, name: str) -> int:
        return self.allocatable.get(name, 0) - self.used.get(name, 0)


def parse_amounts(quantities: Mapping[str, object] | None) -> dict[str, int]:
    """A resource list as numbers: cpu in thousandths, everything else in whole units, rounded up as by the scheduler.

    An invalid quantity counts as zero; `find_unreadable_request` finds it in a pod.
    """
    return {name: _parse_amount(name, str(quantity)) or 0 for name, quantity in (quantities or {}).items()}


def find_unreadable_request(container: Object) -> str:
    """The first resource of a container with an invalid quantity, which a real API server would have refused."""
    requests = (container.get("resources") or {}).get("requests") or {}
    return next((name for name, quantity in requests.items() if _parse_amount(name, str(quantity)) is None), "")


def sum_pod_requests(pod: Object) -> dict[str, int]:
    """What the scheduler reserves on a node for this pod, including 1 of the resource `pods`."""
    spec = pod["spec"]
    running: dict[str, int] = {}
    for container in spec.get("containers") or []:
        running = _add(running, _parse_requests(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        own = _parse_requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _add(sidecars, own)
            peak = _take_larger(peak, sidecars)
        else:
            peak = _take_larger(peak, _add(sidecars, own))
    total = _take_larger(_add(running, sidecars), peak)
    return _add(_add(total, parse_amounts(spec.get("overhead"))), {PODS: 1})


def find_shortages(request: Amounts, node_resources: NodeResources, *, ignored: Collection[str] = ()) -> list[str]:
    """Why the pod does not fit on the node, in the scheduler's words. Only the extender counts `ignored` resources."""
    found = ["Too many pods"] if node_resources.free_amount(PODS) < 1 else []
    for name, amount in request.items():
        if amount > max(0, node_resources.free_amount(name)) and name != PODS and name not in ignored:
            found.append(f"Insufficient {name}")
    return found


def requests_any(pod: Object, resources: Collection[str]) -> bool:
    """Whether requests or limits of a container or init container name one of these, with any amount."""
    return not resources or any(name in resources for name in _list_resource_names(pod["spec"]))


def _list_resource_names(spec: Object) -> Iterator[str]:
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or []:
            resources = container.get("resources") or {}
            yield from resources.get("requests") or ()
            yield from resources.get("limits") or ()


def _parse_requests(container: Object) -> dict[str, int]:
    return parse_amounts((container.get("resources") or {}).get("requests"))


def _add(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in [*one, *other]}


def _take_larger(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in [*one, *other]}


def _parse_amount(name: str, text: str) -> int | None:
    try:
        return math.ceil(parse_quantity(text) * (1000 if name == CPU else 1))
    except ValueError:
        return None
