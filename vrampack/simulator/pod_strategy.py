"""What the API server itself does to pods: defaults at creation, binding, grace at deletion, checks of updates."""

from __future__ import annotations

from collections.abc import Mapping

from vrampack.simulator import errors
from vrampack.simulator.owned_pods import is_finished
from vrampack.simulator.resource_kinds import POD, Object

DEFAULT_GRACE_SECONDS = 30
SPEC_DEFAULTS: Mapping[str, object] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": DEFAULT_GRACE_SECONDS,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
MUTABLE_SPEC_FIELDS = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates")


def prepare_for_create(body: Object) -> Object:
    """Spec and status of a new pod: a status sent by the client is dropped, quantities become strings."""
    spec = {**SPEC_DEFAULTS, **(body.get("spec") or {})}
    if not spec.get("containers"):
        name = (body.get("metadata") or {}).get("name", "")
        raise errors.invalid(POD, name, [("FieldValueRequired", "Required value", "spec.containers")])
    set_container_defaults(spec, has_requests=True)
    return {"spec": spec, "status": {"phase": "Pending"}}


def set_container_defaults(spec: Object, *, has_requests: bool) -> None:
    """Turn quantities into strings and, in a pod but not in a pod template, set missing requests from limits."""
    for group in ("containers", "initContainers"):
        if group in spec:
            spec[group] = [
                _set_resource_defaults(container, has_requests=has_requests) for container in spec[group] or []
            ]


def apply_binding(pod: Object, binding: Object, *, timestamp: str) -> Object:
    """The pod after a Binding: node, annotations and labels in one value, so that they become visible together."""
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    _check_preconditions(metadata, binding.get("metadata") or {})
    if "deletionTimestamp" in metadata:
        raise errors.conflict("pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := pod["spec"].get("nodeName"):
        raise errors.conflict("pods/binding", name, f'pod {name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise errors.conflict("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
    return {
        "metadata": _merge_entries(metadata, binding.get("metadata") or {}),
        "spec": {**pod["spec"], "nodeName": binding["target"]["name"]},
        "status": _build_scheduled_status(pod["status"], timestamp=timestamp),
    }


def validate_binding(binding: Object, *, namespace: str, name: str) -> None:
    """Check a Binding before looking at the pod."""
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if metadata.get("name") != name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    if metadata.get("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if target.get("kind", "Node") not in ("Node", ""):
        raise errors.internal(
            f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        )
    if not target.get("name"):
        raise errors.internal("target.name: Required value")


def validate_eviction(eviction: Object, *, name: str) -> None:
    """Check an Eviction before looking at the pod."""
    if (eviction.get("metadata") or {}).get("name") != name:
        raise errors.bad_request("name in URL does not match name in Eviction object")


def add_disruption_condition(pod: Object, *, timestamp: str) -> Object:
    """The pod with the condition that an eviction adds."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp,
    }
    others = [known for known in pod["status"].get("conditions") or [] if known.get("type") != "DisruptionTarget"]
    return {**pod, "status": {**pod["status"], "conditions": [*others, condition]}}


def resolve_grace_seconds(pod: Object, requested_seconds: int | None) -> int:
    """How long the pod may still run after a delete: 0 if no kubelet has to stop it."""
    if not pod["spec"].get("nodeName") or is_finished(pod):
        return 0
    grace = (
        requested_seconds
        if requested_seconds is not None
        else pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    )
    return int(grace) if grace >= 0 else 1


def prepare_for_update(old: Object, new: Object) -> Object:
    """The pod after a patch, which may change only a few fields; nodeName is not among them, only a Binding sets it."""
    if new.get("spec") == old["spec"]:
        return new
    before, spec = dict(old["spec"]), dict(new.get("spec") or {})
    for each in (before, spec):
        set_container_defaults(each, has_requests=True)
    if _remove_mutable_fields(before) != _remove_mutable_fields(spec):
        message = f"Forbidden: pod updates may not change fields other than images and {', '.join(MUTABLE_SPEC_FIELDS)}"
        raise errors.invalid(POD, old["metadata"]["name"], [("FieldValueForbidden", message, "spec")])
    return {**new, "spec": spec}


def _set_resource_defaults(container: Object, *, has_requests: bool) -> Object:
    resources = dict(container.get("resources") or {})
    limits = _to_quantity_texts(resources.get("limits") or {})
    requests = (limits if has_requests else {}) | _to_quantity_texts(resources.get("requests") or {})
    resources |= {key: value for key, value in (("limits", limits), ("requests", requests)) if value}
    return {**container, "resources": resources}


def _to_quantity_texts(amounts: Mapping[str, object]) -> dict[str, str]:
    """Quantities as strings; unlike the real server it does not shorten them."""
    return {name: str(amount) for name, amount in amounts.items()}


def _check_preconditions(metadata: Object, preconditions: Object) -> None:
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if preconditions.get(field) and preconditions[field] != metadata[field]:
            why = f"{word} in precondition: {preconditions[field]}, {word} in object meta: {metadata[field]}"
            raise errors.conflict("pods", metadata["name"], f"StorageError: invalid object, Precondition failed: {why}")


def _merge_entries(metadata: Object, more: Object) -> Object:
    """The Binding's annotations and labels win over the pod's own (seen on 1.36 for both)."""
    joined = {field: {**(metadata.get(field) or {}), **(more.get(field) or {})} for field in ("annotations", "labels")}
    return {**metadata, **{field: entries for field, entries in joined.items() if entries}}


def _build_scheduled_status(status: Object, *, timestamp: str) -> Object:
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": timestamp}
    others = [known for known in status.get("conditions") or [] if known.get("type") != "PodScheduled"]
    rest = {key: value for key, value in status.items() if key != "nominatedNodeName"}
    return {**rest, "conditions": [*others, condition]}


def _remove_mutable_fields(spec: Object) -> Object:
    fixed = {key: value for key, value in spec.items() if key not in MUTABLE_SPEC_FIELDS}
    for group in ("containers", "initContainers"):
        if group in fixed:
            fixed[group] = [{**container, "image": ""} for container in fixed[group]]
    return fixed
