"""The filters that a scheduler runs itself before it asks the extender, and the pod fields that are not modelled here.

The first filter that fails refuses a node, in the scheduler's order and words: unschedulable, taints,
nodeSelector, and last resources (`resources.find_shortages`). Affinity, spread, host ports, claims and volumes that affect the
choice of a node are not modelled: a pod with them is refused as unschedulable, with the name of the field.
"""

from __future__ import annotations

from collections.abc import Iterator

from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.scheduling.resources import find_unreadable_request

UNMODELLED_SPEC = (
    "affinity",
    "topologySpreadConstraints",
    "resourceClaims",
    "resources",
    "schedulingGroup",
    "workloadRef",
)
IGNORED_VOLUME_FIELDS = frozenset(
    ("name", "configMap", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret")
)
"""Volumes that no filter of the scheduler reads."""
UNSCHEDULABLE_TAINT: Object = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
REFUSING_EFFECTS = ("NoSchedule", "NoExecute")


def find_unmodelled_field(pod: Object) -> str:
    """The first field that affects the choice of a node but is not modelled here; empty when there is none."""
    return next(_list_unmodelled_fields(pod["spec"]), "")


def run_filters(pod: Object, node: Object) -> list[str]:
    """Why this node is refused before its resources are checked; empty when it is not."""
    spec, tolerations = node.get("spec") or {}, pod["spec"].get("tolerations") or []
    if spec.get("unschedulable") and not _is_tolerated(UNSCHEDULABLE_TAINT, tolerations):
        return ["node(s) were unschedulable"]
    refusing = (taint for taint in spec.get("taints") or [] if taint.get("effect") in REFUSING_EFFECTS)
    if not all(_is_tolerated(taint, tolerations) for taint in refusing):
        return ["node(s) had untolerated taint(s)"]
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return ["node(s) didn't match Pod's node affinity/selector"]
    return []


def _list_unmodelled_fields(spec: Object) -> Iterator[str]:
    for name in UNMODELLED_SPEC:
        if spec.get(name):
            yield f"spec.{name}"
    for volume in spec.get("volumes") or []:
        for kind in volume.keys() - IGNORED_VOLUME_FIELDS:
            yield f"spec.volumes[{volume.get('name')}].{kind}"
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or []:
            if any(port.get("hostPort") for port in container.get("ports") or []):
                yield f"spec.{group}[{container.get('name')}].ports.hostPort"
            if name := find_unreadable_request(container):
                yield f"spec.{group}[{container.get('name')}].resources.requests[{name}]"


def _is_tolerated(taint: Object, tolerations: list[Object]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration matches. An empty effect matches all effects, an empty key with `Exists` all keys."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return bool(operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or ""))
