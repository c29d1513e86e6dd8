"""The plan of a Deployment: which pods to create and delete, so that enough pods run with the newest template.

A real Deployment's pods belong to a ReplicaSet; here they belong to the Deployment itself. After a change to the template it
deletes all old pods before it creates new ones, as `strategy: Recreate` does.
"""

from __future__ import annotations

from collections.abc import Sequence

from vrampack.simulator.owned_pods import (
    WorkloadPlan,
    build_pod,
    get_label,
    hash_template,
    is_finished,
    is_ready,
    is_terminating,
)
from vrampack.simulator.resource_kinds import DEPLOYMENT, Object

HASH_LABEL = "pod-template-hash"


def plan_deployment(deployment: Object, pods: Sequence[Object], *, now: str) -> WorkloadPlan:
    """What to create and delete now; `pods` are those that the deployment owns, `now` is the time for its conditions."""
    revision = hash_template(deployment)
    live = [pod for pod in pods if not is_finished(pod)]
    updated = [pod for pod in live if get_label(pod, HASH_LABEL) == revision and not is_terminating(pod)]
    made = WorkloadPlan(_build_status(deployment, live, updated, now))
    old = [pod for pod in live if get_label(pod, HASH_LABEL) != revision]
    current = [*updated, *(pod for pod in old if not is_terminating(pod))]
    if old and not deployment["spec"].get("paused"):
        made.pods_to_delete.extend(pod for pod in old if not is_terminating(pod))
        return made
    missing = deployment["spec"]["replicas"] - len(current)
    prefix = f"{deployment['metadata']['name']}-{revision}-"
    made.pods_to_create.extend(
        build_pod(DEPLOYMENT, deployment, prefix, {HASH_LABEL: revision}) for _ in range(missing)
    )
    if missing < 0:
        made.pods_to_delete.extend(_sort_by_deletion_cost(current)[:-missing])
    return made


def _sort_by_deletion_cost(pods: Sequence[Object]) -> list[Object]:
    """Sort: unbound before bound, not ready before ready, then the newest first."""
    newest = sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]), reverse=True)
    return sorted(newest, key=lambda pod: (bool(pod["spec"].get("nodeName")), is_ready(pod)))


def _build_status(owner: Object, live: Sequence[Object], updated: Sequence[Object], now: str) -> Object:
    staying = [pod for pod in live if not is_terminating(pod)]
    active, ready = len(staying), sum(is_ready(pod) for pod in staying)
    counts = {
        "replicas": active,
        "updatedReplicas": len(updated),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(owner["spec"]["replicas"], active) - ready,
    }
    return {
        "observedGeneration": owner["metadata"]["generation"],
        **{key: count for key, count in counts.items() if count},
        "terminatingReplicas": len(live) - active,
        "conditions": _build_conditions(
            owner, is_complete=active == len(updated) == ready == owner["spec"]["replicas"], ready=ready, now=now
        ),
    }


def _build_conditions(owner: Object, *, is_complete: bool, ready: int, now: str) -> list[Object]:
    if ready >= owner["spec"]["replicas"] - _compute_max_unavailable(owner):
        available = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        available = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    pods = "All pods are of the newest template and ready."
    progressing = (
        ("True", "NewReplicaSetAvailable", pods)
        if is_complete
        else ("True", "ReplicaSetUpdated", "Pods are being made, deleted or started.")
    )
    return [
        _build_condition(owner, "Available", available, now),
        _build_condition(owner, "Progressing", progressing, now),
    ]


def _build_condition(owner: Object, kind: str, content: tuple[str, str, str], now: str) -> Object:
    """A condition, with the times of its last change and of the last change of its status."""
    status, reason, message = content
    known = next((each for each in owner["status"].get("conditions") or [] if each["type"] == kind), None)
    since = known["lastTransitionTime"] if known and known["status"] == status else now
    updated = known["lastUpdateTime"] if known and known["reason"] == reason else now
    return {
        "type": kind,
        "status": status,
        "lastUpdateTime": updated,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }


def _compute_max_unavailable(owner: Object) -> int:
    """`maxUnavailable`, a number or a share rounded down; 0 under `Recreate`."""
    share = (owner["spec"]["strategy"].get("rollingUpdate") or {}).get("maxUnavailable", 0)
    if isinstance(share, str):
        return int(owner["spec"]["replicas"] * int(share.rstrip("%") or 0) // 100)
    return int(share)
