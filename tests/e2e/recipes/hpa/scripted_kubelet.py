"""Kubelet's part that the API server sees: a bound pod runs and is ready, a deleted one is gone."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, Self, TypeAlias

from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS

Json: TypeAlias = Any
"""A pod, or an event of a watch."""

WITHIN_SECONDS = 60
CREATED_AT = "2026-01-01T00:00:00Z"
READY = [
    {"type": kind, "status": "True", "lastTransitionTime": CREATED_AT}
    for kind in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
]
PATCH = "application/strategic-merge-patch+json"


class ScriptedKubelet:
    """Of all nodes, for the pods of namespace `default`, in a thread of its own while the context lasts."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._running: dict[str, Json] = {}
        self._counts: list[int] = []
        self._lock = Lock()
        self._is_stopping = False
        self._connection = http.client.HTTPSConnection(cluster.api_host, cluster.api_port, context=cluster.tls)
        self._thread = Thread(target=self._follow_pods, name="scripted-kubelet")

    def __enter__(self) -> Self:
        self._connection.connect()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        with suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(WITHIN_SECONDS)
        self._connection.close()

    @property
    def running_pods(self) -> Mapping[str, Json]:
        """Those that are ready, by name."""
        with self._lock:
            return dict(self._running)

    @property
    def counts(self) -> Sequence[int]:
        """How many were ready, after each change."""
        with self._lock:
            return tuple(self._counts)

    def list_running(self) -> Sequence[str]:
        """Their names, sorted."""
        return sorted(self.running_pods)

    def _follow_pods(self) -> None:
        """One watch from the beginning, which ends with the context: the API server begins it with what there is."""
        headers = {"Authorization": f"Bearer {self._cluster.admin_token}"}
        self._connection.request("GET", f"{PODS}?watch=true", headers=headers)
        answer = self._connection.getresponse()
        try:
            for line in answer:
                self._handle_event(json.loads(line))
        except (OSError, ValueError, http.client.HTTPException):
            if not self._is_stopping:
                raise

    def _handle_event(self, event: Json) -> None:
        pod = event["object"]
        name = pod["metadata"]["name"]
        is_over = event["type"] == "DELETED" or "deletionTimestamp" in pod["metadata"]
        if is_over:
            self._note_running(name, None)
            if event["type"] != "DELETED":
                self._cluster.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        elif "nodeName" in pod["spec"] and pod["status"]["phase"] == "Pending":
            self._start_pod(pod)

    def _start_pod(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        containers = [
            {"name": each["name"], "image": each["image"], "imageID": "", "ready": True, "restartCount": 0}
            | {"state": {"running": {"startedAt": CREATED_AT}}}
            for each in pod["spec"]["containers"]
        ]
        status = {"phase": "Running", "startTime": CREATED_AT, "conditions": READY, "containerStatuses": containers}
        code, _ = self._cluster.request("PATCH", f"{PODS}/{name}/status", {"status": status}, content_type=PATCH)
        if code == http.client.OK:  # else it was deleted meanwhile, and that event follows
            self._note_running(name, pod)

    def _note_running(self, name: str, pod: Json) -> None:
        """`pod` None: it runs no longer."""
        with self._lock:
            before = len(self._running)
            self._running = {each: held for each, held in self._running.items() if each != name}
            if pod is not None:
                self._running[name] = pod
            if len(self._running) != before:
                self._counts.append(len(self._running))
