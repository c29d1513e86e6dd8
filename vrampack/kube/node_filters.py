"""kube-scheduler's own filters that concern a pod and one node: pure functions over their objects.

NodeAffinity, TaintToleration, NodeUnschedulable, NodeResourcesFit and NodePorts, with the scheduler's reasons. Filters that
look at other nodes (affinity between pods, topology spread) and at volumes are not here. Its rules are in
https://github.com/kubernetes/kubernetes/tree/master/pkg/scheduler/framework/plugins
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import msgspec

from vrampack.cards.units import parse_quantity
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.examined_objects import (
    ExaminedNode,
    ExaminedPod,
    ExaminedPodSpec,
    NodeSelectorTerm,
    PortedContainer,
    PortMapping,
    SelectorRequirement,
)
from vrampack.kube.taints import UNSCHEDULABLE_TAINT

SELECTOR_REASON = "node(s) didn't match Pod's node affinity/selector"
TAINT_REASON = "node(s) had untolerated taint(s)"
UNSCHEDULABLE_REASON = "node(s) were unschedulable"
PORTS_REASON = "node(s) didn't have free ports for the requested pod ports"
PODS_REASON = "Too many pods"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared with what pods ask for
POD_LEVEL_RESOURCES = ("cpu", "memory", "hugepages-")
"""What a pod can ask for as a whole; the last is a prefix."""

NOTHING = Fraction(0)
_WHOLE_NUMBER = re.compile("[+-]?[0-9]{1,18}")

Amounts: TypeAlias = Mapping[str, Fraction]
"""Of resources, by name."""


def find_node_obstacle(pod: ExaminedPod, node: ExaminedNode, others: Collection[ExaminedPod]) -> str:
    """Why the scheduler's filters reject the node for the pod while `others` are the pods there; empty if they pass it."""
    if obstacle := find_placement_obstacle(pod.spec, node):
        return obstacle
    if _has_port_conflict(list_host_ports(pod.spec), others):
        return PORTS_REASON
    return _find_missing_resource(pod, node, others)


def find_placement_obstacle(spec: ExaminedPodSpec, node: ExaminedNode) -> str:
    """The same, whatever runs on the node: by its labels and taints."""
    if not matches_node(spec, node):
        return SELECTOR_REASON
    tolerations = spec.tolerations or ()
    if node.spec.unschedulable and not any(each.tolerates(UNSCHEDULABLE_TAINT) for each in tolerations):
        return UNSCHEDULABLE_REASON
    taints = [taint for taint in node.spec.taints or () if taint.keeps_away]
    is_tolerated = all(any(each.tolerates(taint) for each in tolerations) for taint in taints)
    return "" if is_tolerated else TAINT_REASON


def matches_node(spec: ExaminedPodSpec, node: ExaminedNode) -> bool:
    """Whether the pod's `nodeSelector` and its required node affinity select the node."""
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(_matches_term(term, node) for term in affinity.required.node_selector_terms or ())


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
            return _compares(requirement.operator, value, values)
    return False


def _compares(operator: str, value: str | None, bounds: Sequence[str]) -> bool:
    """The label and the only bound as whole numbers."""
    if value is None or len(bounds) != 1 or not (_WHOLE_NUMBER.fullmatch(value) and _WHOLE_NUMBER.fullmatch(bounds[0])):
        return False
    return int(value) > int(bounds[0]) if operator == "Gt" else int(value) < int(bounds[0])


def _matches_field(requirement: SelectorRequirement, node: ExaminedNode) -> bool:
    """The API server allows only `metadata.name`, with one value."""
    values = requirement.values or []
    if requirement.key != "metadata.name" or len(values) != 1 or requirement.operator not in ("In", "NotIn"):
        return False
    return (node.metadata.name == values[0]) is (requirement.operator == "In")


def _has_port_conflict(wanted: Iterable[PortMapping], others: Iterable[ExaminedPod]) -> bool:
    used = [port for other in others for port in list_host_ports(other.spec)]
    return any(_conflicts(port, other) for port in wanted for other in used)


def _conflicts(one: PortMapping, other: PortMapping) -> bool:
    if (one.host_port, one.protocol) != (other.host_port, other.protocol):
        return False
    addresses = {one.host_ip or ANY_ADDRESS, other.host_ip or ANY_ADDRESS}
    return ANY_ADDRESS in addresses or len(addresses) == 1


def _find_missing_resource(pod: ExaminedPod, node: ExaminedNode, others: Collection[ExaminedPod]) -> str:
    allocatable = _read_quantities(node.status.allocatable)
    if len(others) + 1 > allocatable.get("pods", NOTHING):
        return PODS_REASON
    used: Amounts = {}
    for other in others:
        used = _add(used, sum_requests(other.spec))
    for name, amount in sorted(sum_requests(pod.spec).items()):
        if amount > 0 and amount > allocatable.get(name, NOTHING) - used.get(name, NOTHING):
            return f"Insufficient {name}"
    return ""


def _read_requests(container: PortedContainer) -> Amounts:
    return {} if container.resources is None else _read_quantities(container.resources.requests)


def _read_quantities(quantities: Mapping[str, msgspec.Raw] | None) -> Amounts:
    return {name: _parse(bytes(raw)) for name, raw in (quantities or {}).items()}


def _add(one: Amounts, other: Amounts) -> Amounts:
    return {name: one.get(name, NOTHING) + other.get(name, NOTHING) for name in {**one, **other}}


def _find_larger(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, NOTHING), other.get(name, NOTHING)) for name in {**one, **other}}


@lru_cache(4096)
def _parse(raw: bytes) -> Fraction:
    """Most pods of a cluster write the same few quantities, so each is parsed once."""
    try:
        value = msgspec.json.decode(raw)
        return parse_quantity(value if isinstance(value, str) else str(value))
    except (*UNDECODABLE, ValueError):
        return NOTHING
