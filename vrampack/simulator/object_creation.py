"""Turns the body of a POST into the stored object: checks, fields that the server sets itself, defaults for each kind."""

from __future__ import annotations

import re

from vrampack.simulator import errors, pod_strategy, workload_strategy
from vrampack.simulator.resource_kinds import EVENT, NODE, POD, WORKLOAD_KINDS, Object, ResourceKind

CLIENT_METADATA_FIELDS = ("name", "generateName", "labels", "annotations", "finalizers", "ownerReferences")
"""The metadata that a client may set on a new object; everything else belongs to the server and is dropped."""

DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
SUFFIX_LENGTH = 5


def build_object(kind: ResourceKind, namespace: str, body: Object, *, uid: str, timestamp: str) -> Object:
    """The new object, complete except for its resourceVersion. A namespace exists as soon as an object names it."""
    check_body(kind.name, body, version=kind.group_version)
    given = body.get("metadata") or {}
    if kind.is_namespaced and given.get("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if given.get("resourceVersion"):
        raise errors.internal("resourceVersion should not be set on objects to be created")
    metadata = {key: given[key] for key in CLIENT_METADATA_FIELDS if given.get(key)}
    metadata["name"] = _choose_name(kind, metadata, uid)
    if kind.is_namespaced:
        metadata["namespace"] = namespace
    metadata |= {"uid": uid, "creationTimestamp": timestamp}
    if kind is POD or kind in WORKLOAD_KINDS:
        metadata["generation"] = 1
    return {"metadata": metadata, **_build_content(kind, namespace, body, metadata["name"])}


def check_body(name: str, body: Object, *, version: str = "v1") -> None:
    """Check a body as decoding does. Kind and apiVersion may be missing, as the URL has both; wrong ones are refused."""
    given = body.get("kind") or name, body.get("apiVersion") or version
    if given != (name, version):
        raise errors.bad_request(f'{given[0]} in version "{given[1]}" cannot be handled as a {name}')
    if wrong := _find_invalid_entry(body.get("metadata") or {}):
        raise errors.bad_request(f'{name} in version "{version}" cannot be handled as a {name}: {wrong} is no string')


def check_patched_metadata(kind: ResourceKind, metadata: Object) -> None:
    """The same check after a patch, for which the real server reports a validation error."""
    if wrong := _find_invalid_entry(metadata):
        raise errors.invalid(kind, metadata["name"], [("FieldValueInvalid", "Invalid value: no string", wrong)])


def _find_invalid_entry(metadata: Object) -> str | None:
    """The path of an annotation or label that is not a string; None if all are strings."""
    for field in ("annotations", "labels"):
        for key, value in (metadata.get(field) or {}).items():
            if not isinstance(value, str):
                return f"metadata.{field}[{key}]"
    return None


def _choose_name(kind: ResourceKind, metadata: Object, uid: str) -> str:
    name: str = metadata.get("name") or ""
    if not name and metadata.get("generateName"):
        name = metadata["generateName"] + uid[-SUFFIX_LENGTH:]
    if not name:
        why = "Required value: name or generateName is required"
        raise errors.invalid(kind, "", [("FieldValueRequired", why, "metadata.name")])
    if not DNS_SUBDOMAIN.fullmatch(name):
        why = f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case letters, digits, - or .'
        raise errors.invalid(kind, name, [("FieldValueInvalid", why, "metadata.name")])
    return name


def _build_content(kind: ResourceKind, namespace: str, body: Object, name: str) -> Object:
    if kind is POD:
        return pod_strategy.prepare_for_create(body)
    if kind is NODE:
        return _build_node(body)
    if kind is EVENT:
        return _build_event(namespace, body)
    if kind in WORKLOAD_KINDS:
        return workload_strategy.prepare_for_create(kind, name, body)
    raise ValueError(f"{kind.plural}: no template for a new one")


def _build_node(body: Object) -> Object:
    """A new node. It keeps the status in its body, so that one request creates a schedulable node."""
    status = dict(body.get("status") or {})
    for amounts in ("capacity", "allocatable"):
        if amounts in status:
            status[amounts] = {name: str(amount) for name, amount in status[amounts].items()}
    if "capacity" in status:
        status.setdefault("allocatable", status["capacity"])
    return {"spec": body.get("spec") or {}, "status": status}


def _build_event(namespace: str, body: Object) -> Object:
    about = (body.get("involvedObject") or {}).get("namespace", "")
    # Objects without a namespace, such as nodes, have their events in `default`.
    if namespace != (about or "default"):
        why = f'Invalid value: "{about}": does not match event.namespace'
        name = (body.get("metadata") or {}).get("name", "")
        raise errors.invalid(EVENT, name, [("FieldValueInvalid", why, "involvedObject.namespace")])
    rest = {key: value for key, value in body.items() if key not in ("kind", "apiVersion", "metadata")}
    return {"involvedObject": {}, "source": {}, "firstTimestamp": None, "lastTimestamp": None, "eventTime": None} | rest
