"""The plan of a StatefulSet: which of its pods `<name>-0`, `<name>-1`, ... to create and delete.

`OrderedReady` creates a pod only when all before it are ready, and deletes pods one by one from the end;
`Parallel` does everything at once.
"""

from __future__ import annotations

import re
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
from vrampack.simulator.resource_kinds import STATEFUL_SET, Object

REVISION_LABEL = "controller-revision-hash"


def plan_stateful_set(stateful_set: Object, pods: Sequence[Object]) -> WorkloadPlan:
    """What to create and delete now; `pods` are those that the set owns."""
    revision = f"{stateful_set['metadata']['name']}-{hash_template(stateful_set)}"
    made = WorkloadPlan(_build_status(stateful_set, pods, revision))
    if outdated := [pod for pod in pods if _is_outdated(stateful_set, pod, revision)]:
        made.pods_to_delete.extend(outdated)
        return made
    places = {parse_ordinal(stateful_set, pod): pod for pod in pods}
    if _plan_missing_pods(stateful_set, places, revision, made):
        _plan_excess_pods(stateful_set, places, made)
    return made


def parse_ordinal(owner: Object, pod: Object) -> int | None:
    """The pod's ordinal by its name; None for a name that no pod of the set has."""
    found = re.fullmatch(re.escape(owner["metadata"]["name"]) + r"-(0|[1-9]\d*)", pod["metadata"]["name"])
    return int(found.group(1)) if found else None


def _list_wanted_ordinals(owner: Object) -> range:
    start = (owner["spec"].get("ordinals") or {}).get("start", 0)
    return range(start, start + owner["spec"]["replicas"])


def _is_ordered(owner: Object) -> bool:
    return bool(owner["spec"]["podManagementPolicy"] == "OrderedReady")


def _is_outdated(owner: Object, pod: Object, revision: str) -> bool:
    """Whether it has an old template that the update strategy replaces."""
    strategy = owner["spec"]["updateStrategy"]
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    is_replaced = strategy["type"] == "RollingUpdate" and (parse_ordinal(owner, pod) or 0) >= partition
    return is_replaced and not is_terminating(pod) and get_label(pod, REVISION_LABEL) != revision


def _plan_missing_pods(owner: Object, places: dict[int | None, Object], revision: str, made: WorkloadPlan) -> bool:
    """Plan the missing pods; false while an ordered set must wait for one of its pods."""
    for place in _list_wanted_ordinals(owner):
        pod = places.get(place)
        if pod is None:
            made.pods_to_create.append(_build_pod(owner, place, revision))
        elif is_finished(pod) and not is_terminating(pod):
            made.pods_to_delete.append(pod)
        elif is_ready(pod) and not is_terminating(pod):
            continue
        if _is_ordered(owner):
            return False
    return True


def _plan_excess_pods(owner: Object, places: dict[int | None, Object], made: WorkloadPlan) -> None:
    excess = sorted(
        (place for place in places if place is not None and place not in _list_wanted_ordinals(owner)), reverse=True
    )
    for place in excess:
        if not is_terminating(places[place]):
            made.pods_to_delete.append(places[place])
        if _is_ordered(owner):
            return


def _build_pod(owner: Object, place: int, revision: str) -> Object:
    name = f"{owner['metadata']['name']}-{place}"
    labels = {
        "apps.kubernetes.io/pod-index": str(place),
        REVISION_LABEL: revision,
        "statefulset.kubernetes.io/pod-name": name,
    }
    pod = build_pod(STATEFUL_SET, owner, f"{owner['metadata']['name']}-", labels)
    pod["metadata"]["name"] = name
    pod["spec"]["hostname"] = name
    if owner["spec"]["serviceName"]:
        pod["spec"]["subdomain"] = owner["spec"]["serviceName"]
    return pod


def _build_status(owner: Object, pods: Sequence[Object], revision: str) -> Object:
    staying = [pod for pod in pods if not is_terminating(pod)]
    updated = sum(get_label(pod, REVISION_LABEL) == revision for pod in staying)
    ready = sum(is_ready(pod) for pod in pods)
    counts = {"readyReplicas": ready, "currentReplicas": updated, "updatedReplicas": updated}
    return {
        "observedGeneration": owner["metadata"]["generation"],
        "replicas": len(pods),
        **{key: count for key, count in counts.items() if count},
        "currentRevision": revision,
        "updateRevision": revision,
        "collisionCount": 0,
        "availableReplicas": ready,
    }
