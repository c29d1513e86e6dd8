"""An API client without a network: pods in memory, and Bindings as the real server takes them.

For tests that do not depend on the network and run thousands of times; the fault proxy covers network faults.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vrampack.kube.client import Api
from vrampack.kube.errors import RefusedError
from vrampack.kube.objects import ObjectMeta, PodObject

Object = dict[str, Any]  # Any: raw API objects


class FakeKubeApi(Api):
    """`vrampack.kube.client.Api` over a dictionary of raw pods by namespace and name."""

    def __init__(self, pods: Iterable[Object] = ()) -> None:
        self._observers = []
        self.pods = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): copy.deepcopy(pod) for pod in pods}
        self.bindings: list[tuple[str, str]] = []
        """Pod uid and node of every Binding that was written."""
        self.gets: list[tuple[str, str]] = []
        self.events: list[tuple[str, Mapping[str, object]]] = []
        """Namespace and event of each that was written."""
        self.conditions: list[tuple[str, Mapping[str, object]]] = []
        """Name of the pod and condition of each that was written."""
        self.condition_errors: list[Exception] = []
        """The answers to the next writes of conditions; nothing is written."""
        self.bind_errors: list[Exception] = []
        """The answers to the next Bindings; nothing is written."""

    async def close(self) -> None:
        pass

    async def get_pod(self, namespace: str, name: str, *, timeout_seconds: float) -> PodObject | None:  # noqa: ARG002 - the real one's shape
        self.gets.append((namespace, name))
        pod = self.pods.get((namespace, name))
        return None if pod is None else msgspec.json.decode(json.dumps(pod), type=PodObject)

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node_name: str,
        annotations: Mapping[str, str],
        *,
        version: str = "",
        timeout_seconds: float,  # noqa: ARG002 - the real one's shape
    ) -> None:
        if self.bind_errors:
            raise self.bind_errors.pop(0)
        pod = self.pods.get((namespace, name))
        if pod is None:
            raise RefusedError(404, "NotFound", f'pods "{name}" not found')
        if pod["metadata"]["uid"] != uid:
            raise RefusedError(409, "Conflict", "Precondition failed: UID in precondition")
        if version and pod["metadata"].get("resourceVersion", version) != version:
            raise RefusedError(409, "Conflict", "Precondition failed: ResourceVersion in precondition")
        if pod["spec"].get("nodeName"):
            raise RefusedError(409, "Conflict", f"pod {name} is already assigned to node {pod['spec']['nodeName']}")
        pod["spec"]["nodeName"] = node_name
        pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), **annotations}
        self.bindings.append((uid, node_name))

    async def patch_pod_condition(
        self,
        namespace: str,  # noqa: ARG002 - the real one's shape
        name: str,
        uid: str,  # noqa: ARG002 - the real one's shape
        condition: Mapping[str, object],
        *,
        timeout_seconds: float,  # noqa: ARG002 - the real one's shape
    ) -> PodObject:
        """The answer names no uid: the ledger learns nothing from it that a test did not feed."""
        if self.condition_errors:
            raise self.condition_errors.pop(0)
        self.conditions.append((name, condition))
        return PodObject(metadata=ObjectMeta(name=name))

    async def create_event(self, namespace: str, event: Mapping[str, object], *, timeout_seconds: float) -> None:  # noqa: ARG002 - the real one's shape
        self.events.append((namespace, event))
