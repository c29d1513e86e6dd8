"""Stores and objects for tests that need a store: a fixed clock, uids that count up."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import DEPLOYMENT, NODE, POD, STATEFUL_SET, Object, ResourceKind

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def a_store(*, log_length: int = 1000) -> ObjectStore:
    uids = (f"uid-{number:05}" for number in itertools.count(1))
    return ObjectStore(now=lambda: NOON, new_uid=lambda: next(uids), log_length=log_length)


def a_workload(name: str, **spec: object) -> Object:
    """The body of a StatefulSet or Deployment whose pods carry the label `app` with its name."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }


def list_pods(store: ObjectStore) -> list[Object]:
    return list(store.read_page(POD, None).items)


def list_pod_names(store: ObjectStore) -> list[str]:
    return [pod["metadata"]["name"] for pod in list_pods(store)]


def bind_pod(store: ObjectStore, name: str, node: str = "n") -> None:
    store.bind("default", name, {"metadata": {"name": name}, "target": {"name": node}})


def a_node(store: ObjectStore, name: str = "n", **status: object) -> Object:
    return store.create(NODE, "", {"metadata": {"name": name}, "status": status})


def patch_object(
    store: ObjectStore, kind: ResourceKind, name: str, patch: Object, *, is_status: bool = False
) -> Object:
    return store.patch(kind, "default", name, patch, apply_patch=apply_merge_patch, is_status=is_status)


def make_ready(store: ObjectStore, name: str) -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    patch_object(store, POD, name, {"status": status}, is_status=True)


def a_stateful_set(store: ObjectStore, name: str, **spec: object) -> Object:
    return store.create(STATEFUL_SET, "default", a_workload(name, **spec))


def a_deployment(store: ObjectStore, name: str, **spec: object) -> Object:
    return store.create(DEPLOYMENT, "default", a_workload(name, **spec))
