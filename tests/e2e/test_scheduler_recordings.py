"""The real kube-scheduler still does what tests/simulator/recorded holds the embedded one to.

    VRAMPACK_RECORD_SCHEDULER=1 .venv/bin/python -m pytest -m e2e tests/e2e/test_scheduler_recordings.py

rewrites the recordings instead of comparing: after a new scenario, or a new version of Kubernetes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.scripted_extender import ScriptedExtender
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS
from tests.support.processes import ManagedProcess
from tests.support.scheduler_recordings.player import ScenarioPlayer
from tests.support.scheduler_recordings.recordings import read_recording_of, without_ports, write_recording_of
from tests.support.scheduler_recordings.scenarios import CONFIGURATION, SCENARIOS

RECORD = "VRAMPACK_RECORD_SCHEDULER"
MERGE = "application/merge-patch+json"


class RealWorld:
    """The real cluster, as the player wants it. Its calls block the loop for milliseconds, which does no harm here."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster

    def create(self, kind: str, name: str, body: dict[str, Any]) -> None:
        body = {**body, "metadata": {**body.get("metadata", {}), "name": name}}
        if kind == "Pod":
            body["spec"] = self._with_class(body["spec"])
        self._cluster.request_ok("POST", PODS if kind == "Pod" else "/api/v1/nodes", body)

    def patch(self, plural: str, name: str, patch: dict[str, Any], *, is_status: bool = False) -> None:
        path = f"{PODS}/{name}" if plural == "pods" else f"/api/v1/{plural}/{name}"
        self._cluster.request_ok("PATCH", path + ("/status" if is_status else ""), patch, content_type=MERGE)

    def delete(self, pod: str) -> None:
        self._cluster.request_ok("DELETE", f"{PODS}/{pod}", {"gracePeriodSeconds": 0})

    def pods(self) -> list[dict[str, Any]]:
        return list(self._cluster.request_ok("GET", PODS)["items"])

    def events(self) -> list[dict[str, Any]]:
        found = self._cluster.request_ok("GET", "/api/v1/namespaces/default/events")["items"]
        return [event for event in found if event["involvedObject"].get("kind") == "Pod"]

    def _with_class(self, spec: dict[str, Any]) -> dict[str, Any]:
        """A real pod's priority is that of its class."""
        if "priority" not in spec:
            return spec
        name = f"priority-{spec['priority']}"
        self._cluster.add_priority_class(name, spec["priority"])
        return {key: value for key, value in spec.items() if key != "priority"} | {"priorityClassName": name}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_real_scheduler_behaves_as_recorded(
    name: str, cluster: ControlPlane, scheduler: Callable[..., ManagedProcess]
) -> None:
    headers = {"Authorization": f"Bearer {cluster.admin_token}"}
    async with ScriptedExtender(cluster.api_url, headers=headers, tls=cluster.tls) as extender:
        player = ScenarioPlayer(RealWorld(cluster), extender)
        player.prepare(SCENARIOS[name])
        scheduler(configuration=CONFIGURATION.format(url=extender.url))
        seen = without_ports(await player.play(SCENARIOS[name]))
    if os.environ.get(RECORD):
        write_recording_of(name, seen, version=_version(cluster))
    assert seen == read_recording_of(name)


def _version(cluster: ControlPlane) -> str:
    return str(cluster.request_ok("GET", "/version")["gitVersion"])
