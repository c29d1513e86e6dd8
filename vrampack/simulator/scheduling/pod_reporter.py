"""What the scheduler writes about a pod: the PodScheduled condition, and the events Scheduled and FailedScheduling.

The texts are the real scheduler's, without what it appends about preemption, which is not modelled. An event is
written once per pod and text; the real scheduler counts repetitions in the event instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC

from vrampack.simulator.object_store import Clock, ObjectStore, format_rfc3339
from vrampack.simulator.resource_kinds import EVENT, POD, Object

UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"


def format_fit_error(node_count: int, reasons: Iterable[str]) -> str:
    """One line for all nodes: equal reasons are counted, and sorted as text (`10 x` before `2 x`)."""
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    told = f"0/{node_count} nodes are available:"
    return f"{told} {', '.join(counted)}." if counted else told


class PodReporter:
    """Writes to the store, under the name of one scheduler."""

    def __init__(self, store: ObjectStore, *, now: Clock) -> None:
        self._store = store
        self._now = now
        self._last_messages: dict[str, str] = {}

    def report_failure(self, pod: Object, *, reason: str, message: str) -> None:
        """Report that the pod was not placed. Repeating the same message changes nothing and activates no pod."""
        self._write_event(pod, type_="Warning", reason="FailedScheduling", action="Scheduling", message=message)
        metadata, old = pod["metadata"], _find_scheduled_condition(pod)
        since = old.get("lastTransitionTime") if old.get("status") == "False" else None
        condition = {
            "type": "PodScheduled",
            "observedGeneration": metadata.get("generation", 1),
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": since or format_rfc3339(self._now()),
            "reason": reason,
            "message": message,
        }
        self._store.patch(
            POD, metadata["namespace"], metadata["name"], condition, apply_patch=_replace_condition, is_status=True
        )

    def report_scheduled(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        message = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        self._write_event(pod, type_="Normal", reason="Scheduled", action="Binding", message=message)
        self.forget_pod(metadata["uid"])

    def forget_pod(self, uid: str) -> None:
        """The pod is gone or placed."""
        self._last_messages.pop(uid, None)

    def _write_event(self, pod: Object, *, type_: str, reason: str, action: str, message: str) -> None:
        metadata = pod["metadata"]
        if self._last_messages.get(metadata["uid"]) == message:
            return
        self._last_messages[metadata["uid"]] = message
        scheduler = pod["spec"].get("schedulerName", "default-scheduler")
        about = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")}
        body = {
            "metadata": {"name": f"{metadata['name']}.{self._store.version:016x}"},
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", **about},
            "type": type_,
            "reason": reason,
            "action": action,
            "message": message,
            "eventTime": self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingComponent": scheduler,
            "reportingInstance": scheduler,
        }
        self._store.create(EVENT, metadata["namespace"], body)


def _find_scheduled_condition(pod: Object) -> Object:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((known for known in conditions if known.get("type") == "PodScheduled"), {})


def _replace_condition(pod: Object, condition: Object) -> Object:
    """Merge the condition here: a null in a patch would remove `lastProbeTime`, but a scheduler leaves it null."""
    status = pod.get("status") or {}
    others = [known for known in status.get("conditions") or [] if known.get("type") != condition["type"]]
    return {**pod, "status": {**status, "conditions": [*others, condition]}}
