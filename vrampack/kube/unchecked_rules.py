"""Fields of a pod by which the scheduler chooses nodes and that `node_filters` does not check: they depend on other objects."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vrampack.kube.decoding import NULL, UNDECODABLE
from vrampack.kube.examined_objects import Affinity, ExaminedPodSpec

VOLUMES_OF_ANY_NODE = frozenset(
    ("name", "configMap", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret")
)
"""Kinds that no filter of the scheduler reads."""
_TEXT = msgspec.json.Decoder(str)
_NO_NAME = msgspec.Raw(b'""')


def list_unchecked_fields(spec: ExaminedPodSpec) -> Iterator[str]:
    """The fields of this pod, as paths."""
    affinity = spec.affinity or Affinity()
    for name, rule in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        if rule is not None and rule.required:
            yield f"spec.affinity.{name}"
    if any(each.when_unsatisfiable != "ScheduleAnyway" for each in spec.topology_spread_constraints or ()):
        yield "spec.topologySpreadConstraints"
    for name, value in (("schedulingGroup", spec.scheduling_group), ("workloadRef", spec.workload_ref)):
        if value != NULL:
            yield f"spec.{name}"
    try:
        if spec.has_resource_claims:
            yield "spec.resourceClaims"
        for volume in spec.list_volumes():
            name = _TEXT.decode(volume.get("name", _NO_NAME))
            yield from (f"spec.volumes[{name}].{kind}" for kind in sorted(volume.keys() - VOLUMES_OF_ANY_NODE))
    except UNDECODABLE:
        yield "spec.volumes"
