"""The fields that we read from API objects, with only the standard library's JSON, and their conversion to values of `cards`.

The same objects give the same values as in `vrampack/kube/objects.py`, and the same objects are refused: a test compares the
two. Unknown fields are skipped, missing ones are empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, TypeVar

from vrampack.cards import well_known
from vrampack.cards.env_injection import VISIBLE_DEVICES_VARIABLE
from vrampack.cards.list_answer import is_list
from vrampack.cards.node_annotations import NodeReading, read_node
from vrampack.cards.pod import Pod
from vrampack.cards.records import read_record
from vrampack.cards.request import ContainerKind, ContainerSpec, read_pod_request, take_requesting_containers
from vrampack.cli.inspect.errors import DamagedObjectError

Json: TypeAlias = Mapping[str, Any]  # Any: a field of an API object, checked by `_field`

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DecodedNode:
    """The parts that we keep of a v1.Node: a page of whole ones is large."""

    name: str
    annotations: Mapping[str, str]
    allocatable: Mapping[str, str]
    address: str


@dataclass(frozen=True, slots=True)
class NamespacePod:
    """A pod of the reader's."""

    pod: Pod
    limits_mib: Mapping[str, str]
    """By container, as recorded."""
    waits_for: str
    """Why it has no node, in the words of the extender, else of its scheduler."""


@dataclass(frozen=True, slots=True)
class _DecodedMetadata:
    name: str
    namespace: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    is_terminating: bool


def decode_items(body: bytes) -> list[object]:
    """The objects of a page. Raises `DamagedObjectError` when it is not one."""
    items = _read_optional_field(_decode_json(body), "items", list, "")
    return [] if items is None else items


def _decode_head(body: bytes) -> Json | None:
    """What a page has before its items; None if it has anything of it after them."""
    head = body[: max(0, body.find(b'"items":'))].rstrip()
    try:
        page = json.loads(head.removesuffix(b",") + b"}")
    except (ValueError, RecursionError):
        return None
    return page if isinstance(page, dict) and {"kind", "metadata"} <= page.keys() else None


def _decode_json(body: bytes) -> Json:
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DamagedObjectError(f"not JSON: {error}") from error
    return _check_object(value, "the answer")


def read_continue_token(body: bytes) -> str:
    """The token for the next page. It does not decode the items if they come last, as the API server writes them.

    Raises `DamagedObjectError` when the page is not a list of the API server.
    """
    page = _decode_head(body) or _decode_json(body)
    metadata = _read_part(page, "metadata")
    kind, version, token = (
        str(_read_field(part, key, str, "", path))
        for part, key, path in (
            (page, "kind", ""),
            (metadata, "resourceVersion", "metadata."),
            (metadata, "continue", "metadata."),
        )
    )
    if not is_list(kind, version):
        raise DamagedObjectError(f"no list of the API server: kind {kind!r}, version {version!r}")
    return token


def decode_pod(value: object) -> Pod:
    """The pod as the ledger sees it. Raises `DamagedObjectError`."""
    pod = _check_object(value, "the pod")
    metadata = _decode_metadata(pod)
    spec, status = _read_part(pod, "spec"), _read_part(pod, "status")
    containers = _decode_containers(spec)
    ask = read_pod_request(containers, metadata.labels, metadata.annotations) if containers else None
    return Pod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        node_name=_read_optional_field(spec, "nodeName", str, "spec.") or "",
        request=ask,
        record=read_record(metadata.annotations, ask),
        is_terminating=metadata.is_terminating,
        is_finished=_read_optional_field(status, "phase", str, "status.") in ("Succeeded", "Failed"),
        priority=_read_optional_field(spec, "priority", int, "spec.") or 0,
        resource_version=metadata.resource_version,
        scheduler_name=_read_optional_field(spec, "schedulerName", str, "spec.") or "",
        is_gated=bool(_read_optional_field(spec, "schedulingGates", list, "spec.")),
    )


def decode_own_pod(value: object) -> NamespacePod | None:
    """What its owner wants to know of a pod; None if it neither asks for GPU memory nor holds any. Raises `DamagedObjectError`."""
    pod = decode_pod(value)
    if not pod.can_hold_memory or pod.is_finished:
        return None
    raw = _check_object(value, "the pod")
    prefix = well_known.LIMIT_MIB_PREFIX
    limits = {
        key.removeprefix(prefix): text
        for key, text in _decode_metadata(raw).annotations.items()
        if key.startswith(prefix)
    }
    said = {} if pod.node_name else _read_condition_messages(_read_part(raw, "status"))
    return NamespacePod(pod, limits, said.get(well_known.PLACEMENT_CONDITION) or said.get("PodScheduled") or "")


def _read_condition_messages(status: Json) -> dict[str, str]:
    """By type."""
    conditions = [
        _check_object(each, "status.conditions")
        for each in _read_optional_field(status, "conditions", list, "status.") or ()
    ]
    return {
        _read_field(each, "type", str, "", "status.conditions."): _read_optional_field(
            each, "message", str, "status.conditions."
        )
        or ""
        for each in conditions
    }


def decode_node(value: object) -> DecodedNode:
    """Decode a v1.Node. Raises `DamagedObjectError`."""
    node = _check_object(value, "the node")
    metadata, status = _decode_metadata(node), _read_part(node, "status")
    allocatable = _read_optional_field(status, "allocatable", dict, "status.") or {}
    wanted = (well_known.MEMORY_RESOURCE, well_known.COUNT_RESOURCE)
    return DecodedNode(
        name=metadata.name,
        annotations=metadata.annotations,
        allocatable={name: _to_quantity_text(allocatable[name]) for name in wanted if name in allocatable},
        address=_find_internal_address(status),
    )


def to_node(node: DecodedNode, *, unit_mib: int) -> NodeReading:
    """The node's facts, and the problems of what could not be read."""
    return read_node(node.name, node.annotations, node.allocatable, unit_mib=unit_mib, address=node.address)


def describe_object(value: object) -> str:
    """The name of a damaged object, as far as it can still be read."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    parts = [metadata.get("namespace"), metadata.get("name")] if isinstance(metadata, dict) else []
    return "/".join(part for part in parts if isinstance(part, str) and part) or "without a name"


def _decode_metadata(value: Json) -> _DecodedMetadata:
    metadata = _read_part(value, "metadata")
    name, namespace, uid, version = (
        _read_field(metadata, key, str, "", "metadata.") for key in ("name", "namespace", "uid", "resourceVersion")
    )
    labels, annotations = (_read_texts(metadata, key, "metadata.") or {} for key in ("labels", "annotations"))
    is_terminating = _read_optional_field(metadata, "deletionTimestamp", str, "metadata.") is not None
    return _DecodedMetadata(name, namespace, uid, version, labels, annotations, is_terminating)


def _decode_containers(spec: Json) -> list[ContainerSpec]:
    """The containers that name our resource, init containers first, in the order of the spec. See `take_requesting_containers`."""
    return take_requesting_containers([*_decode_each(spec, "initContainers"), *_decode_each(spec, "containers")])


def _decode_each(spec: Json, key: str) -> Iterator[ContainerSpec | None]:
    """Decode all containers, as a damaged one anywhere makes the whole pod a damaged object."""
    is_init = key == "initContainers"
    for at, value in enumerate(_read_optional_field(spec, key, list, "spec.") or ()):
        container = _check_object(value, f"spec.{key}[{at}]")
        yield _decode_container(container, at, f"spec.{key}[{at}].", is_init=is_init)


def _decode_container(container: Json, index: int, path: str, *, is_init: bool) -> ContainerSpec | None:
    name = _read_field(container, "name", str, "", path)
    restart_policy = _read_optional_field(container, "restartPolicy", str, path)
    resources = _read_optional_field(container, "resources", dict, path) or {}
    limits, requests = (
        _read_optional_field(resources, key, dict, f"{path}resources.") or {} for key in ("limits", "requests")
    )
    asked = next(
        (each[well_known.MEMORY_RESOURCE] for each in (requests, limits) if well_known.MEMORY_RESOURCE in each),
        _NOT_REQUESTED,
    )
    if asked is _NOT_REQUESTED:
        return None
    kind: ContainerKind = "main"
    if is_init:
        kind = "sidecar" if restart_policy == "Always" else "init"
    return ContainerSpec(name, kind, index, _to_quantity_text(asked), _has_reference(container, name))


def _has_reference(container: Json, name: str) -> bool:
    """Whether admission set the container's visible devices from the pod's annotation for that container.

    Of several entries with one name the container gets the last.
    """
    env = container.get("env")
    if not isinstance(env, list) or not any(
        isinstance(each, dict) and each.get("name") == VISIBLE_DEVICES_VARIABLE for each in env
    ):
        return False  # damaged or not, it has no such entry; true for most containers
    try:
        paths = [_decode_env(_check_object(entry, "env")) for entry in env]
    except DamagedObjectError:
        return False
    path = next((path for variable, path in reversed(paths) if variable == VISIBLE_DEVICES_VARIABLE), None)
    return path == f"metadata.annotations['{well_known.VISIBLE_DEVICES_PREFIX}{name}']"


def _decode_env(entry: Json) -> tuple[str, str | None]:
    """An environment variable and the field of the pod it comes from."""
    name = _read_field(entry, "name", str, "", "env.")
    source = _read_optional_field(
        _read_optional_field(entry, "valueFrom", dict, "env.") or {}, "fieldRef", dict, "env."
    )
    return name, None if source is None else _read_field(source, "fieldPath", str, "", "env.")


def _find_internal_address(status: Json) -> str:
    """The first internal address."""
    found: list[str] = []
    for at, value in enumerate(_read_optional_field(status, "addresses", list, "status.") or ()):
        path = f"status.addresses[{at}]"
        address = _check_object(value, path)
        kind, text = (_read_field(address, key, str, "", f"{path}.") for key in ("type", "address"))
        if kind == "InternalIP":
            found.append(text)
    return found[0] if found else ""


def _to_quantity_text(value: object) -> str:
    """A quantity as written: a text, or a number from older writers. Anything else will not parse as a quantity."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _read_texts(value: Json, key: str, path: str) -> dict[str, str] | None:
    texts = _read_optional_field(value, key, dict, path)
    for name, text in (texts or {}).items():
        if not isinstance(text, str):
            raise DamagedObjectError(f'{path}{key}["{name}"]: not a text')
    return texts


def _read_part(value: Json, key: str) -> Json:
    part: Json = _read_field(value, key, dict, {}, "")
    return part


def _read_optional_field(value: Json, key: str, kind: type[T], path: str) -> T | None:
    """A field that may be null."""
    return None if value.get(key) is None else _read_field(value, key, kind, None, path)


def _read_field(value: Json, key: str, kind: type[T], default: T | None, path: str) -> Any:  # noqa: ANN401 - of type `kind`, or the default
    found = value.get(key, default)
    if found is not default and (not isinstance(found, kind) or isinstance(found, bool)):
        raise DamagedObjectError(f"{path}{key}: {_TYPE_NAMES[kind]} is expected")
    return found


def _check_object(value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise DamagedObjectError(f"{path}: an object is expected")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


_NOT_REQUESTED = object()
_TYPE_NAMES: Mapping[type, str] = {str: "a text", int: "a whole number", dict: "an object", list: "a list"}
