"""Which fields of a pod decide about nodes and are not checked by `node_filters`."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from vrampack.kube.examined_objects import ExaminedPodSpec
from vrampack.kube.unchecked_rules import list_unchecked_fields

REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
CLAIM = {"claimName": "data"}

SPECS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({"volumes": [{"name": "config", "configMap": {}}], "resourceClaims": []}, []),
    "required affinity": ({"affinity": {"podAffinity": REQUIRED}}, ["spec.affinity.podAffinity"]),
    "preferred affinity": ({"affinity": {"podAffinity": PREFERRED, "podAntiAffinity": PREFERRED}}, []),
    "anti-affinity": ({"affinity": {"podAntiAffinity": REQUIRED}}, ["spec.affinity.podAntiAffinity"]),
    "spread": (
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
        ["spec.topologySpreadConstraints"],
    ),
    "spread, if possible": ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, []),
    "volumes": (
        {"volumes": [{"name": "data", "persistentVolumeClaim": CLAIM}, {"name": "driver", "csi": {}}]},
        ["spec.volumes[data].persistentVolumeClaim", "spec.volumes[driver].csi"],
    ),
    "claims": ({"resourceClaims": [{"name": "a"}]}, ["spec.resourceClaims"]),
    "a group": ({"schedulingGroup": {"podGroupName": "g"}}, ["spec.schedulingGroup"]),
    "a group of 1.35": ({"workloadRef": {"name": "g"}}, ["spec.workloadRef"]),
    "volumes that cannot be read": ({"volumes": 7}, ["spec.volumes"]),
}


@pytest.mark.parametrize(("spec", "fields"), SPECS.values(), ids=SPECS)
def test_fields_that_depend_on_other_objects_are_named(spec: dict[str, Any], fields: list[str]) -> None:
    assert list(list_unchecked_fields(msgspec.json.decode(json.dumps(spec), type=ExaminedPodSpec))) == fields
