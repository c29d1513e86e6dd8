"""`nodeSelector` and required node affinity of a pod, as kube-scheduler's NodeAffinity filter reads them.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vrampack.simulator.resource_kinds import Object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def matches_node_affinity(spec: Object, node: Object) -> bool:
    """Whether the node matches one of the required terms; true without any."""
    required = _get_required(spec)
    if required is None:
        return True
    return any(_holds(term, node) for term in required.get("nodeSelectorTerms") or ())


def list_affinity_keys(spec: Object) -> Iterator[str]:
    """The keys of node labels by which the pod chooses."""
    yield from spec.get("nodeSelector") or ()
    for term in (_get_required(spec) or {}).get("nodeSelectorTerms") or ():
        yield from (each["key"] for each in term.get("matchExpressions") or ())


def _get_required(spec: Object) -> Object | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required: Object | None = affinity.get(REQUIRED)
    return required


def _holds(term: Object, node: Object) -> bool:
    """Whether the node matches all of a term; an empty term matches no node."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    parts = [(each, labels) for each in term.get("matchExpressions") or ()]
    parts += [(each, fields) for each in term.get("matchFields") or ()]
    return bool(parts) and all(_meets(each, texts) for each, texts in parts)


def _meets(requirement: Object, texts: Mapping[str, str]) -> bool:
    found, values = texts.get(requirement["key"]), requirement.get("values") or []
    if requirement["operator"] in ("Gt", "Lt"):
        return _compare_numbers(requirement["operator"], found, values)
    holds = {
        "In": found in values,
        "NotIn": found not in values,
        "Exists": found is not None,
        "DoesNotExist": found is None,
    }
    return holds.get(requirement["operator"], False)


def _compare_numbers(operator: str, found: str | None, values: Sequence[str]) -> bool:
    try:
        left, right = int(found or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right
