"""What the embedded scheduler reads of a pod: for its own filters, for those that it lacks, and to know whether to ask the extender.

The filters are those of `kube.node_filters`. Others affect the choice of a node too: a pod with their fields is refused as
unschedulable, with the name of the field.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from vrampack.cards.units import parse_quantity
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.examined_objects import ExaminedNode, ExaminedPodSpec
from vrampack.kube.unchecked_rules import list_unchecked_fields
from vrampack.simulator.resource_kinds import Object

PREFERENCE = "preferredDuringSchedulingIgnoredDuringExecution"
_SPEC = msgspec.json.Decoder(ExaminedPodSpec)
_NODE = msgspec.json.Decoder(ExaminedNode)


def decode_spec(pod: Object) -> ExaminedPodSpec:
    """Raises one of `UNDECODABLE`, as does `decode_node`."""
    return _SPEC.decode(msgspec.json.encode(pod.get("spec") or {}))


def decode_node(node: Object) -> ExaminedNode:
    return _NODE.decode(msgspec.json.encode(node))


def find_unmodelled_field(pod: Object) -> str:
    """The first field that affects the choice of a node but is not modelled here; empty when there is none."""
    affinity = pod["spec"].get("affinity") or {}
    preferences = (f"spec.affinity.{kind}.{PREFERENCE}" for kind, rules in affinity.items() if rules.get(PREFERENCE))
    return find_unchecked_field(pod) or next(preferences, "")


def find_unchecked_field(pod: Object) -> str:
    """The first that forbids nodes but is not checked; empty when there is none."""
    try:
        spec = decode_spec(pod)
    except UNDECODABLE:
        return "spec"
    return next(list_unchecked_fields(spec), "") or next(_list_unreadable_requests(pod.get("spec") or {}), "")


def requests_any(pod: Object, resources: Collection[str]) -> bool:
    """Whether requests or limits of a container or init container name one of these, with any amount."""
    return not resources or any(name in resources for name in _list_resource_names(pod["spec"]))


def _list_resource_names(spec: Object) -> Iterator[str]:
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or []:
            resources = container.get("resources") or {}
            yield from resources.get("requests") or ()
            yield from resources.get("limits") or ()


def _list_unreadable_requests(spec: Object) -> Iterator[str]:
    """Invalid quantities, which a real API server would have refused."""
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or []:
            for name, quantity in ((container.get("resources") or {}).get("requests") or {}).items():
                if not _is_quantity(str(quantity)):
                    yield f"spec.{group}[{container.get('name')}].resources.requests[{name}]"


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True
