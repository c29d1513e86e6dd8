"""What kube-scheduler sends and reads: the extender protocol, as the scheduler's Go types spell it.

Go reads keys in any letter case, so we do too: the fast way takes the exact names that every scheduler sends, and
only a body with other spellings is folded and read again. Unknown fields are skipped, nulls are empty.
https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

MAX_SCORE = 10
"""`MaxExtenderPriority`; the scheduler multiplies it by weight and by 10."""


@dataclass(frozen=True, slots=True)
class VerbResponse:
    """An HTTP answer, ready to send. `result` is for the metrics: ok, no, error."""

    body: bytes
    result: str = "ok"
    status: int = 200


class MalformedCallError(ValueError):
    """The body is not what the scheduler sends; the message says what to change."""


class BindingArgs(msgspec.Struct, frozen=True):
    """Bind."""

    pod_name: str = msgspec.field(default="", name="PodName")
    pod_namespace: str = msgspec.field(default="", name="PodNamespace")
    pod_uid: str = msgspec.field(default="", name="PodUID")
    node: str = msgspec.field(default="", name="Node")


class FilterResult(msgspec.Struct, frozen=True):
    nodes: None = msgspec.field(default=None, name="Nodes")
    node_names: list[str] = msgspec.field(default_factory=list, name="NodeNames")
    failed: Mapping[str, str] = msgspec.field(default_factory=dict, name="FailedNodes")
    unresolvable: Mapping[str, str] = msgspec.field(default_factory=dict, name="FailedAndUnresolvableNodes")
    error: str = msgspec.field(default="", name="Error")


class HostPriority(msgspec.Struct, frozen=True, gc=False):
    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


class BindingResult(msgspec.Struct, frozen=True):
    error: str = msgspec.field(default="", name="Error")


_Wire = TypeVar("_Wire", bound=msgspec.Struct)
_Read = TypeVar("_Read")

encode_json = msgspec.json.Encoder().encode
_BINDING = msgspec.json.Decoder(BindingArgs)
_BINDING_FIELDS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(BindingArgs))
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""What the API server accepts as a name. Anything else (`..`) would change the path of a call."""


def read_binding_args(body: bytes) -> BindingArgs:
    """A bind call with all four fields set. Raises `MalformedCallError` naming the first that is not."""
    return read_guarded(_read_binding, body)


def read_guarded(read: Callable[..., _Read], body: bytes, *more: str) -> _Read:
    """Make every error of a decoder (bad UTF-8, numbers out of range, deep nesting) a `MalformedCallError`."""
    try:
        return read(body, *more)
    except MalformedCallError:
        raise
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise MalformedCallError(f"the body is not what a scheduler sends: {error}") from error


def _read_binding(body: bytes) -> BindingArgs:
    args = try_decode(_BINDING, body)
    if args is None or not all((args.pod_name, args.pod_namespace, args.pod_uid, args.node)):
        args = decode_folded(body, BindingArgs)
    for name, spelled in _BINDING_FIELDS:
        value = getattr(args, name)
        if not value:
            raise MalformedCallError(f"{spelled} is missing or empty: send the scheduler's ExtenderBindingArgs")
        if name != "pod_uid" and not _NAME.fullmatch(value):
            raise MalformedCallError(f"{spelled}: {value[:60]!r} is not a name")
    return args


def try_decode(decoder: msgspec.json.Decoder[_Read], body: bytes | msgspec.Raw) -> _Read | None:
    """None when a part has not the type it should have, e.g. null where a Go decoder reads nothing: fold it, then."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        return None


def decode_folded(body: bytes, kind: type[_Wire]) -> _Wire:
    """Read the body with its keys in any letter case and its nulls left out."""
    return msgspec.json.decode(msgspec.json.encode(_fold_value(msgspec.json.decode(body), kind)), type=kind)


def _fold_value(value: Any, kind: Any) -> Any:  # noqa: ANN401 - any JSON value, any annotation of a field
    """`value` with the keys of every struct spelled as its fields are; keys of maps are left alone."""
    if get_origin(kind) in (Union, types.UnionType):
        for choice in get_args(kind):
            value = _fold_value(value, choice)
        return value
    if get_origin(kind) is list and isinstance(value, list):
        return [_fold_value(item, get_args(kind)[0]) for item in value]
    if get_origin(kind) is dict and isinstance(value, dict):
        inner = get_args(kind)[1]
        takes_null = types.NoneType in get_args(inner)
        return {key: _fold_value(item, inner) for key, item in value.items() if takes_null or item is not None}
    if not (is_struct_type(kind) and isinstance(value, dict)):
        return value
    hints = get_type_hints(kind)
    spelled = {field.encode_name.lower(): field for field in msgspec.structs.fields(kind)}
    folded = {}
    for key, item in value.items():
        field = spelled.get(key.lower())
        if field is not None and item is not None:
            folded[field.encode_name] = _fold_value(item, hints[field.name])
    return folded


def is_struct_type(kind: Any) -> bool:  # noqa: ANN401 - any annotation of a field
    """Whether a field is of a struct itself."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
