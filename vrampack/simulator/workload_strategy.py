"""What the API server itself does to StatefulSets and Deployments: defaults, checks, and their `scale` subresource.

It creates no pods: a controller does (`workload_controller.py`), as in a real cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from vrampack.simulator import errors, pod_strategy
from vrampack.simulator.resource_kinds import STATEFUL_SET, Object, ResourceKind
from vrampack.simulator.selectors import format_selector, matches_selector

Cause = tuple[str, str, str]
"""Reason, message, field, for `errors.invalid`."""

TEMPLATE_DEFAULTS: Mapping[str, object] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": pod_strategy.DEFAULT_GRACE_SECONDS,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
DEPLOYMENT_DEFAULTS: Mapping[str, object] = {
    "replicas": 1,
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
    "revisionHistoryLimit": 10,
    "progressDeadlineSeconds": 600,
}
STATEFUL_SET_DEFAULTS: Mapping[str, object] = {
    "replicas": 1,
    "serviceName": "",
    "podManagementPolicy": "OrderedReady",
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    "revisionHistoryLimit": 10,
    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
}
MUTABLE_STATEFUL_SET_FIELDS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
SCALE = ResourceKind(name="Scale", plural="scales", short_name="", group="autoscaling")
"""Not kept: half of an object of another kind."""
POD_MANAGEMENT_POLICIES = ("OrderedReady", "Parallel")
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def prepare_for_create(kind: ResourceKind, name: str, body: Object) -> Object:
    """Spec and status of a new workload; a status sent by the client is dropped."""
    spec = _set_defaults(kind, body.get("spec") or {})
    if causes := [*_check_name(kind, name), *_check_spec(kind, spec)]:
        raise errors.invalid(kind, name, causes)
    return {"spec": spec, "status": {}}


def prepare_for_update(kind: ResourceKind, old: Object, new: Object) -> Object:
    """The object after a patch, with defaults filled in, and with a new generation if its spec changed."""
    spec = _set_defaults(kind, new.get("spec") or {})
    if causes := [*_check_spec(kind, spec), *_check_immutable_fields(kind, old["spec"], spec)]:
        raise errors.invalid(kind, old["metadata"]["name"], causes)
    generation = old["metadata"].get("generation", 0) + (spec != old["spec"])
    return {**new, "spec": spec, "metadata": {**new["metadata"], "generation": generation}}


def build_scale(item: Object) -> Object:
    """The `scale` subresource, as an object of its own kind."""
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {key: item["metadata"][key] for key in shown if key in item["metadata"]}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": item["spec"]["replicas"]} if item["spec"]["replicas"] else {},
        "status": {
            "replicas": item["status"].get("replicas", 0),
            "selector": format_selector(item["spec"]["selector"]),
        },
    }


def build_scale_patch(scale: Object) -> Object:
    """The patch of the workload for this `scale`."""
    metadata, replicas = scale["metadata"], (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        why = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise errors.invalid(SCALE, metadata["name"], [("FieldValueInvalid", why, "spec.replicas")])
    kept = {key: metadata[key] for key in ("resourceVersion", "uid") if key in metadata}
    return {"metadata": kept, "spec": {"replicas": replicas}}


def _set_defaults(kind: ResourceKind, given: Object) -> Object:
    """The spec with defaults for what is missing or null, and quantities as strings."""
    defaults = STATEFUL_SET_DEFAULTS if kind is STATEFUL_SET else DEPLOYMENT_DEFAULTS
    spec = {**defaults, **{key: value for key, value in given.items() if value is not None}}
    strategy = "updateStrategy" if kind is STATEFUL_SET else "strategy"
    if not spec[strategy].get("type"):
        spec[strategy] = {**spec[strategy], "type": "RollingUpdate"}
    template = spec.get("template") or {}
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if value is not None}
    pod_spec = {**TEMPLATE_DEFAULTS, **(template.get("spec") or {})}
    pod_strategy.set_container_defaults(pod_spec, has_requests=False)
    return {**spec, "template": {"metadata": metadata, "spec": pod_spec}}


def _check_name(kind: ResourceKind, name: str) -> list[Cause]:
    """Check the name, as pods of a StatefulSet have it in their host name."""
    if kind is not STATEFUL_SET or DNS_LABEL.fullmatch(name):
        return []
    why = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
    return [("FieldValueInvalid", f'Invalid value: "{name}": {why}', "metadata.name")]


def _check_spec(kind: ResourceKind, spec: Object) -> list[Cause]:
    causes = []
    if not isinstance(spec["replicas"], int) or spec["replicas"] < 0:
        why = f"Invalid value: {spec['replicas']}: must be greater than or equal to 0"
        causes.append(("FieldValueInvalid", why, "spec.replicas"))
    if kind is STATEFUL_SET and spec["podManagementPolicy"] not in POD_MANAGEMENT_POLICIES:
        why = f"Invalid value: \"{spec['podManagementPolicy']}\": must be 'OrderedReady' or 'Parallel'"
        causes.append(("FieldValueInvalid", why, "spec.podManagementPolicy"))
    return causes + _check_selector(kind, spec) + _check_template(spec["template"]["spec"])


def _check_selector(kind: ResourceKind, spec: Object) -> list[Cause]:
    selector, labels = spec.get("selector"), spec["template"]["metadata"].get("labels")
    if selector is not None and not any(selector.values()):
        why = f"Invalid value: {{}}: empty selector is invalid for {kind.name.lower()}"
        return [("FieldValueInvalid", why, "spec.selector")]
    if selector is not None and matches_selector(selector, labels or {}):
        return []
    why = f"Invalid value: {_encode(labels)}: `selector` does not match template `labels`"
    missing = [("FieldValueRequired", "Required value", "spec.selector")] if selector is None else []
    return [*missing, ("FieldValueInvalid", why, "spec.template.metadata.labels")]


def _check_template(spec: Object) -> list[Cause]:
    causes = []
    if not spec.get("containers"):
        causes.append(("FieldValueRequired", "Required value", "spec.template.spec.containers"))
    if spec["restartPolicy"] != "Always":
        why = f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always"'
        causes.append(("FieldValueNotSupported", why, "spec.template.spec.restartPolicy"))
    return causes


def _check_immutable_fields(kind: ResourceKind, old: Object, new: Object) -> list[Cause]:
    if kind is not STATEFUL_SET:
        if old["selector"] == new.get("selector"):
            return []
        why = f"Invalid value: {_encode(new.get('selector'))}: field is immutable"
        return [("FieldValueInvalid", why, "spec.selector")]
    if all(old.get(key) == new.get(key) for key in old.keys() | new.keys() if key not in MUTABLE_STATEFUL_SET_FIELDS):
        return []
    *most, last = (f"'{name}'" for name in MUTABLE_STATEFUL_SET_FIELDS)
    why = f"Forbidden: updates to statefulset spec for fields other than {', '.join(most)} and {last} are forbidden"
    return [("FieldValueForbidden", why, "spec")]


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
