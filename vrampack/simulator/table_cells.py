"""The text of every cell of the tables that `kubectl get` prints, in the real server's words.

For a pod whose init containers have not finished, the phase is shown instead of their progress: our kubelet leaves no pod in
that state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeAlias

from vrampack.simulator.human_duration import format_age
from vrampack.simulator.owned_pods import is_finished
from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.selectors import format_selector

CellFormatter: TypeAlias = Callable[[Object, datetime], str | int]
"""Takes the object, and the time up to which ages are counted."""

NONE = "<none>"
ROLE_LABEL_PREFIX, LEGACY_ROLE_LABEL = "node-role.kubernetes.io/", "kubernetes.io/role"


def format_name(item: Object, _: datetime) -> str:
    return str(item["metadata"].get("name", ""))


def format_object_age(item: Object, now: datetime) -> str:
    return format_age(item["metadata"].get("creationTimestamp"), now)


def format_pod_ready(pod: Object, _: datetime) -> str:
    sidecars = [each for each in pod["spec"].get("initContainers") or [] if each.get("restartPolicy") == "Always"]
    names = {each.get("name") for each in [*(pod["spec"].get("containers") or []), *sidecars]}
    ready = sum(
        bool(each.get("ready") and "running" in each.get("state", {})) for each in _list_container_statuses(pod, names)
    )
    return f"{ready}/{len(names)}"


def format_pod_restarts(pod: Object, _: datetime) -> str:
    names = {each.get("name") for each in pod["spec"].get("containers") or []}
    return str(sum(each.get("restartCount", 0) for each in _list_container_statuses(pod, names)))


def _list_container_statuses(pod: Object, names: set[str | None]) -> list[Object]:
    status = pod["status"]
    told = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return [each for each in told if each.get("name") in names]


def format_pod_status(pod: Object, _: datetime) -> str:
    status = pod["status"]
    reason = status.get("reason") or status.get("phase", "")
    if _find_condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    states = [each.get("state") or {} for each in status.get("containerStatuses") or []]
    for state in reversed(states):  # reversed, so that the first container decides
        reason = _describe_container_state(state) or reason
    if reason == "Completed" and any("running" in state for state in states):
        reason = "Running" if _find_condition(pod, "Ready").get("status") == "True" else "NotReady"
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if not is_finished(pod):
            return "Terminating"
    return str(reason)


def _describe_container_state(state: Object) -> str:
    waiting, over = state.get("waiting") or {}, state.get("terminated")
    if waiting.get("reason"):
        return str(waiting["reason"])
    if over is None:
        return ""
    if over.get("reason"):
        return str(over["reason"])
    return f"Signal:{over['signal']}" if over.get("signal") else f"ExitCode:{over.get('exitCode', 0)}"


def _find_condition(item: Object, kind: str) -> Object:
    known = item["status"].get("conditions") or []
    return next((each for each in known if each.get("type") == kind), {})


def format_pod_ip(pod: Object, _: datetime) -> str:
    addresses = pod["status"].get("podIPs") or [{"ip": pod["status"].get("podIP")}]
    return str(addresses[0].get("ip") or NONE)


def format_readiness_gates(pod: Object, _: datetime) -> str:
    gates = pod["spec"].get("readinessGates") or []
    passed = sum(_find_condition(pod, gate["conditionType"]).get("status") == "True" for gate in gates)
    return f"{passed}/{len(gates)}" if gates else NONE


def format_node_status(node: Object, _: datetime) -> str:
    ready = _find_condition(node, "Ready").get("status")
    told = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return f"{told},SchedulingDisabled" if node["spec"].get("unschedulable") else told


def format_node_roles(node: Object, _: datetime) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(ROLE_LABEL_PREFIX) for key in labels if key.startswith(ROLE_LABEL_PREFIX)}
    roles |= {labels[LEGACY_ROLE_LABEL]} if labels.get(LEGACY_ROLE_LABEL) else set()
    return ",".join(sorted(roles - {""})) or NONE


def build_node_address_cell(address_type: str) -> CellFormatter:
    def cell(node: Object, _: datetime) -> str:
        known = node["status"].get("addresses") or []
        return next((str(each.get("address")) for each in known if each.get("type") == address_type), NONE)

    return cell


def build_node_info_cell(field: str, missing: str) -> CellFormatter:
    return lambda node, _: str((node["status"].get("nodeInfo") or {}).get(field) or missing)


def format_event_last_seen(event: Object, now: datetime) -> str:
    series = event.get("series")
    if series:
        return format_age(series.get("lastObservedTime"), now)
    return (
        format_age(event["lastTimestamp"], now) if event.get("lastTimestamp") else format_event_first_seen(event, now)
    )


def format_event_first_seen(event: Object, now: datetime) -> str:
    return format_age(event.get("eventTime") or event.get("firstTimestamp"), now)


def format_event_object(event: Object, _: datetime) -> str:
    about = event.get("involvedObject") or {}
    return "/".join(filter(None, (about.get("kind", "").lower(), about.get("name"))))


def format_event_source(event: Object, _: datetime) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    return ", ".join(filter(None, (component, source.get("host") or event.get("reportingInstance"))))


def build_event_field_cell(field: str) -> CellFormatter:
    return lambda event, _: str(event.get(field) or "").strip()


def format_event_count(event: Object, _: datetime) -> int:
    return int((event.get("series") or event).get("count") or 1)


def format_ready_replicas(item: Object, _: datetime) -> str:
    return f"{item['status'].get('readyReplicas', 0)}/{item['spec'].get('replicas', 0)}"


def build_status_count_cell(field: str) -> CellFormatter:
    return lambda item, _: int(item["status"].get(field, 0))


def build_container_field_cell(field: str) -> CellFormatter:
    def cell(item: Object, _: datetime) -> str:
        containers: Iterable[Object] = item["spec"].get("template", {}).get("spec", {}).get("containers") or []
        return ",".join(str(each.get(field, "")) for each in containers)

    return cell


def format_workload_selector(item: Object, _: datetime) -> str:
    return format_selector(item["spec"].get("selector") or {}) or NONE
