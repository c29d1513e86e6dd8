"""What the API server refused to our account: the shipped roles must suffice, and a 403 proves that they do not.

The API server's own audit log is read, not our programs' logs: a client that swallows a 403 is exactly
the one that must be caught.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

NAMESPACE = "vrampack-system"
ACCOUNT = "vrampack-extender"
"""Scheduler and extender are one pod, and a pod has one account."""
KUBE_SCHEDULER = "system:kube-scheduler"
"""The cluster's own scheduler, where it is the one that calls the extender."""
FORBIDDEN = 403

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": [f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}", KUBE_SCHEDULER]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True, slots=True)
class AccessDenial:
    """One request of ours that was answered 403, and why."""

    user: str
    verb: str
    uri: str
    message: str


class AccessDenialLog:
    """Reads the log from where the last reader stopped, so each refusal is reported to one test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def drain(self) -> list[AccessDenial]:
        """Refusals since the last call. A test that provokes one takes it and asserts it: nothing else exempts it."""
        refused = (event for event in self._new_events() if _status(event) == FORBIDDEN)
        return [_refusal(event) for event in refused]

    def _new_events(self) -> list[dict[str, object]]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            log.seek(self._offset)
            whole, _, _ = log.read().rpartition(b"\n")  # a line still being written waits for the next call
        self._offset += len(whole) + bool(whole)
        return [json.loads(line) for line in whole.splitlines()]


def _status(event: dict[str, object]) -> object:
    status = event.get("responseStatus")
    return status.get("code") if isinstance(status, dict) else None


def _refusal(event: dict[str, object]) -> AccessDenial:
    user, status = event["user"], event["responseStatus"]
    name = str(user["username"]) if isinstance(user, dict) else ""
    message = str(status.get("message", "")) if isinstance(status, dict) else ""
    return AccessDenial(name, str(event["verb"]), str(event["requestURI"]), message)
