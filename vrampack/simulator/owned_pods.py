"""Pods owned by a workload: how to build one from the template, and what a controller reads from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from vrampack.kube.objects import FINISHED_PHASES
from vrampack.simulator.resource_kinds import WORKLOAD_KINDS, Object, ResourceKind

SAFE_HASH_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The real server's alphabet: without vowels and similar characters, so that names contain no words."""
HASH_LENGTH = 10


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """What to create and delete now for one workload; its status describes the state before that."""

    status: Object
    pods_to_create: list[Object] = field(default_factory=list)
    pods_to_delete: list[Object] = field(default_factory=list)


def hash_template(owner: Object) -> str:
    """A hash that is stable across runs. The real server's hash differs, because it hashes its own memory layout."""
    digest = hashlib.sha256(msgspec.json.encode(owner["spec"]["template"], order="deterministic")).digest()
    return "".join(SAFE_HASH_LETTERS[byte % len(SAFE_HASH_LETTERS)] for byte in digest[:HASH_LENGTH])


def build_pod(kind: ResourceKind, owner: Object, prefix: str, labels: Mapping[str, str]) -> Object:
    """A pod from the owner's template with these additional labels; the server chooses its name."""
    template = owner["spec"]["template"]
    given = template["metadata"]
    metadata = {
        "generateName": prefix,
        "labels": {**(given.get("labels") or {}), **labels},
        "ownerReferences": [build_owner_reference(kind, owner)],
        **{key: given[key] for key in ("annotations", "finalizers") if given.get(key)},
    }
    return {"metadata": metadata, "spec": dict(template["spec"])}


def build_owner_reference(kind: ResourceKind, owner: Object) -> Object:
    return {
        "apiVersion": kind.group_version,
        "kind": kind.name,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def find_controller(pod: Object) -> Object | None:
    """The owner that controls the pod, if any."""
    references = pod["metadata"].get("ownerReferences") or []
    return next((each for each in references if each.get("controller")), None)


def is_workload_reference(owner: Object) -> bool:
    """Whether an owner reference is to a workload kind of this server."""
    return any(
        (owner.get("apiVersion"), owner.get("kind")) == (kind.group_version, kind.name) for kind in WORKLOAD_KINDS
    )


def get_label(pod: Object, key: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(key, ""))


def is_terminating(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_finished(pod: Object) -> bool:
    return pod["status"].get("phase") in FINISHED_PHASES


def is_ready(pod: Object) -> bool:
    """Whether it is running and ready; it may be terminating too."""
    conditions = pod["status"].get("conditions") or []
    has_condition = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return has_condition and pod["status"].get("phase") == "Running"
