"""kube-scheduler's own filters that concern a pod and one node: pure functions over their objects.

NodeAffinity, TaintToleration, NodeUnschedulable, NodeResourcesFit and NodePorts, with the scheduler's reasons. Filters that
look at other nodes (affinity between pods, topology spread) and at volumes are not here. Its rules are in
https://github.com/kubernetes/kubernetes/tree/master/pkg/scheduler/framework/plugins
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from typing import NamedTuple, TypeAlias

import msgspec

from vrampack.cards.units import parse_quantity
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.examined_objects import (
    ExaminedNode,
    ExaminedPod,
    ExaminedPodSpec,
    NodeSelector,
    NodeSelectorTerm,
    PortedContainer,
    PortMapping,
    SelectorRequirement,
)
from vrampack.kube.objects import NodeObject
from vrampack.kube.taints import UNSCHEDULABLE_TAINT, Taint, Toleration, is_greater

SELECTOR_REASON = "node(s) didn't match Pod's node affinity/selector"
TAINT_REASON = "node(s) had untolerated taint(s)"
UNSCHEDULABLE_REASON = "node(s) were unschedulable"
PORTS_REASON = "node(s) didn't have free ports for the requested pod ports"
PODS_REASON = "Too many pods"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared with what pods ask for
CPU, PODS = "cpu", "pods"
BYTES_RESOURCES = ("memory", "ephemeral-storage", "hugepages-")
"""Resources that are counted in bytes; the last is a prefix."""
POD_LEVEL_RESOURCES = (CPU, "memory", "hugepages-")
"""What a pod can ask for as a whole; the last is a prefix."""

Amounts: TypeAlias = Mapping[str, int]
"""Of resources, by name: CPU in thousandths, all others in ones."""


class Label(NamedTuple):
    """A label that a node must have."""

    key: str
    value: str


class Shortage(NamedTuple):
    """A resource of which a node has too little for a pod."""

    resource: str
    needed: int
    free: int
    total: int

    def __str__(self) -> str:
        needed, free, total = (format_amount(self.resource, each) for each in self[1:])
        return f"too little {self.resource} ({free} of {total} are free, {needed} needed)"


class Obstacle(NamedTuple):
    """One thing that keeps a pod off a node."""

    reason: str
    """In the scheduler's words."""
    detail: str
    """Which label, taint, port or amount it is about, in words."""
    subject: Label | Taint | Shortage | None = None
    """The same as a value, where one is enough to remove it."""


@dataclass(frozen=True, slots=True)
class HostUse:
    """What a pod takes of its node as the scheduler counts it, or what all pods there take."""

    amounts: Amounts = field(default_factory=dict)
    """The number of pods among them."""
    ports: tuple[PortMapping, ...] = ()

    def __add__(self, other: HostUse) -> HostUse:
        return HostUse(_add(self.amounts, other.amounts), self.ports + other.ports)

    def __sub__(self, other: HostUse) -> HostUse:
        amounts = _add(self.amounts, {name: -amount for name, amount in other.amounts.items()})
        return HostUse(amounts, tuple((Counter(self.ports) - Counter(other.ports)).elements()))


def read_host_use(spec: ExaminedPodSpec) -> HostUse:
    return HostUse({PODS: 1, **sum_requests(spec)}, tuple(list_host_ports(spec)))


def find_node_obstacle(pod: ExaminedPod, node: ExaminedNode, others: Iterable[ExaminedPod]) -> str:
    """Why the scheduler's filters reject the node for the pod while `others` are the pods there; empty if they pass it."""
    used = sum((read_host_use(other.spec) for other in others), HostUse())
    return next(iter(list_reasons(pod.spec, node, read_allocatable(node), used)), "")


def list_reasons(
    spec: ExaminedPodSpec, node: ExaminedNode, allocatable: Amounts, used: HostUse, *, ignored: Collection[str] = ()
) -> list[str]:
    """The reasons that the scheduler gives: those of its first filter that rejects the node; empty if all pass it."""
    if obstacle := find_placement_obstacle(spec, node):
        return [obstacle]
    found = [each.reason for each in list_shortages(read_host_use(spec), allocatable, used, ignored=ignored)]
    return found[:1] if PORTS_REASON in found else found


def find_placement_obstacle(spec: ExaminedPodSpec, node: ExaminedNode) -> str:
    """The same, whatever runs on the node: by its labels and taints."""
    return next((each.reason for each in list_placement_obstacles(spec, node)), "")


def list_placement_obstacles(spec: ExaminedPodSpec, node: ExaminedNode) -> Iterator[Obstacle]:
    """All that keeps the pod off the node whatever runs there, in the order of the scheduler's filters."""
    tolerations, is_cordoned = spec.tolerations or (), node.spec.unschedulable
    if is_cordoned and not _is_tolerated(UNSCHEDULABLE_TAINT, tolerations):
        yield Obstacle(UNSCHEDULABLE_REASON, "the node is cordoned")
    for taint in node.spec.taints or ():
        is_known = is_cordoned and taint.key == UNSCHEDULABLE_TAINT.key
        if taint.keeps_away and not is_known and not _is_tolerated(taint, tolerations):
            yield Obstacle(TAINT_REASON, f"taint {taint} is not tolerated", taint)
    labels = node.metadata.labels or {}
    for key, value in sorted((spec.node_selector or {}).items()):
        if labels.get(key) != value:
            yield Obstacle(SELECTOR_REASON, f"nodeSelector wants {key}={value}", Label(key, value))
    required = spec.required_nodes
    if required is not None and not any(_matches_term(each, node) for each in required.node_selector_terms or ()):
        yield Obstacle(SELECTOR_REASON, f"node affinity wants {required}", _find_label(required))


def list_shortages(
    asked: HostUse, allocatable: Amounts, used: HostUse, *, ignored: Collection[str] = ()
) -> Iterator[Obstacle]:
    """What a pod asks for and the node's other pods leave too little of, without the resources that are `ignored`."""
    for port in asked.ports:
        if any(_conflicts(port, other) for other in used.ports):
            yield Obstacle(PORTS_REASON, f"its port {port.host_port} is taken")
    for name, amount in asked.amounts.items():
        total = allocatable.get(name, 0)
        free = max(0, total - used.amounts.get(name, 0))
        if amount <= free or not amount or name in ignored:
            continue
        if name == PODS:
            shortage = Shortage(name, amount, free, total)
            yield Obstacle(PODS_REASON, f"it takes {total} pods, and has as many", shortage)
        else:
            shortage = Shortage(name, amount, free, total)
            yield Obstacle(f"Insufficient {name}", str(shortage), shortage)


def read_allocatable(node: NodeObject) -> Amounts:
    """What kubelet offers to pods."""
    return _read_quantities(node.status.allocatable)


def format_amount(name: str, amount: int) -> str:
    """As people write it: `1.5` of cpu, `4 GiB` of memory."""
    if name == CPU:
        return f"{amount / 1000:g}"
    return f"{amount / 2**30:.4g} GiB" if name.startswith(BYTES_RESOURCES) else str(amount)


def list_host_ports(spec: ExaminedPodSpec) -> list[PortMapping]:
    """The ports that the pod takes of its host: those of containers that run as long as it does."""
    running = [each for each in spec.init_containers or () if each.restart_policy == "Always"]
    return [port for each in (*(spec.containers or ()), *running) for port in each.ports or () if port.host_port > 0]


def sum_requests(spec: ExaminedPodSpec) -> Amounts:
    """What the scheduler counts for the pod, by resource. An unreadable quantity counts as 0.

    https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
    """
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers or ():
        asked = _read_requests(container)
        if container.restart_policy == "Always":
            sidecars = _add(sidecars, asked)
            asked = {}
        peak = _find_larger(peak, _add(sidecars, asked))
    running = sidecars
    for container in spec.containers or ():
        running = _add(running, _read_requests(container))
    whole = {} if spec.resources is None else _read_quantities(spec.resources.requests)
    given = {name: amount for name, amount in whole.items() if name.startswith(POD_LEVEL_RESOURCES)}
    return _add({**_find_larger(running, peak), **given}, _read_quantities(spec.overhead))


def _find_label(selector: NodeSelector) -> Label | None:
    """A label that is enough to be selected."""
    for term in selector.node_selector_terms or ():
        match term:
            case NodeSelectorTerm(
                match_fields=None, match_expressions=[SelectorRequirement(key=key, operator="In", values=[value, *_])]
            ):
                return Label(key, value)
    return None


def _is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(each.tolerates(taint) for each in tolerations)


def _matches_term(term: NodeSelectorTerm, node: ExaminedNode) -> bool:
    """All its requirements; an empty term selects nothing."""
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    labels = node.metadata.labels or {}
    return bool(expressions or fields) and (
        all(_matches_label(each, labels) for each in expressions) and all(_matches_field(each, node) for each in fields)
    )


def _matches_label(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    """A requirement that is not valid selects nothing, as in the scheduler."""
    value, values = labels.get(requirement.key), requirement.values or []
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return bool(values) and value not in values
        case "Exists":
            return value is not None and not values
        case "DoesNotExist":
            return value is None and not values
        case "Gt" | "Lt":
            bound = values[0] if len(values) == 1 else None
            return is_greater(value, bound) if requirement.operator == "Gt" else is_greater(bound, value)
    return False


def _matches_field(requirement: SelectorRequirement, node: ExaminedNode) -> bool:
    """The API server allows only `metadata.name`, with one value."""
    values = requirement.values or []
    if requirement.key != "metadata.name" or len(values) != 1 or requirement.operator not in ("In", "NotIn"):
        return False
    return (node.metadata.name == values[0]) is (requirement.operator == "In")


def _conflicts(one: PortMapping, other: PortMapping) -> bool:
    if (one.host_port, one.protocol) != (other.host_port, other.protocol):
        return False
    addresses = {one.host_ip or ANY_ADDRESS, other.host_ip or ANY_ADDRESS}
    return ANY_ADDRESS in addresses or len(addresses) == 1


def _read_requests(container: PortedContainer) -> Amounts:
    return {} if container.resources is None else _read_quantities(container.resources.requests)


def _read_quantities(quantities: Mapping[str, msgspec.Raw] | None) -> Amounts:
    return {name: _parse(bytes(raw), 1000 if name == CPU else 1) for name, raw in (quantities or {}).items()}


def _add(one: Amounts, other: Amounts) -> Amounts:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _find_larger(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


@lru_cache(4096)
def _parse(raw: bytes, scale: int) -> int:
    """Rounded up, as by the scheduler. Most pods of a cluster write the same few quantities, so each is parsed once."""
    try:
        value = msgspec.json.decode(raw)
        return ceil(parse_quantity(value if isinstance(value, str) else str(value)) * scale)
    except (*UNDECODABLE, ValueError):
        return 0
