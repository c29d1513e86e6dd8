"""What kube-scheduler sends and reads: the extender protocol, as the scheduler's Go types spell it.

Go reads keys in any letter case, so we do too: the fast path takes the exact names that every scheduler sends, and
only a body with other spellings is folded and read again. Unknown fields are skipped, nulls count as empty.
https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

MAX_SCORE = 10
"""`MaxExtenderPriority`; the scheduler multiplies it by weight and by 10."""


GENERATION_HEADER = "x-vrampack-config-generation"


@dataclass(frozen=True, slots=True)
class VerbResponse:
    """An HTTP answer, ready to send. `result` is for the metrics: ok, no, error."""

    body: bytes
    result: str = "ok"
    status: int = 200
    generation: int = 0
    """The generation of the configuration that decided; 0: none did."""


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


def read_guarded(read: Callable[..., _Read], body: bytes, *more: object) -> _Read:
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
    """Decode, or None when some value has a wrong type, e.g. a null that a Go decoder accepts: the caller then folds."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        return None


def decode_in_any_case(raw: msgspec.Raw, decoder: msgspec.json.Decoder[_Wire]) -> _Wire:
    """Decode a struct whose keys are nearly always spelled like its fields. Keys of maps in it may look like fields."""
    kind = decoder.type
    value = try_decode(decoder, raw) if is_spelled_as_fields(raw, kind) else None
    return decode_folded(raw, kind) if value is None else value


def is_spelled_as_fields(raw: msgspec.Raw, kind: type[msgspec.Struct]) -> bool:
    """Whether every key that matches a field of `kind` in any letter case is spelled exactly like it."""
    return _is_spelled_as_fields(raw, _plan_folding(kind))


def decode_folded(body: bytes | msgspec.Raw, kind: type[_Wire]) -> _Wire:
    """Read the body with its keys in any letter case and its nulls left out.

    Only what `kind` reads is decoded: everything else is skipped, or copied unchanged.
    """
    return msgspec.json.decode(_fold_json(body, _plan_folding(kind)), type=kind)


@dataclass(frozen=True, slots=True)
class _StructFolding:
    """An object whose keys name fields: by lower-case key, how the field is spelled, and how its value is folded."""

    fields: Mapping[str, tuple[str, _Folding]]
    structs: Mapping[str, _Folding]
    """The fields that contain structs, by their exact spelling."""


@dataclass(frozen=True, slots=True)
class _MapFolding:
    """An object whose keys are left alone."""

    values: _Folding
    keeps_null: bool


@dataclass(frozen=True, slots=True)
class _ListFolding:
    items: _Folding


_Folding = _StructFolding | _MapFolding | _ListFolding | None
"""How the JSON of one type is folded; None: it is copied unchanged."""


@cache
def _plan_folding(kind: Any) -> _Folding:  # noqa: ANN401 - any annotation of a field
    """Cached for each type: resolving the annotations of a struct takes longer than folding it."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (kind,) = (choice for choice in inner if choice is not types.NoneType)
        return _plan_folding(kind)
    if origin in (list, tuple):
        items = _plan_folding(inner[0])
        return _ListFolding(items) if items else None
    if origin is dict:
        return _MapFolding(_plan_folding(inner[1]), types.NoneType in get_args(inner[1]))
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return None
    hints = get_type_hints(kind)
    fields = {field.encode_name: _plan_folding(hints[field.name]) for field in msgspec.structs.fields(kind)}
    return _StructFolding(
        {name.lower(): (name, folding) for name, folding in fields.items()},
        {name: folding for name, folding in fields.items() if _has_structs(folding)},
    )


def _has_structs(folding: _Folding) -> bool:
    """Whether it or its items are structs; no struct that is decoded this way has maps of structs."""
    return isinstance(folding, _StructFolding) or (isinstance(folding, _ListFolding) and _has_structs(folding.items))


def _fold_json(raw: bytes | msgspec.Raw, folding: _Folding) -> bytes | msgspec.Raw:
    """The same JSON with the keys of every struct spelled like its fields; values of a wrong type are left to the decoder."""
    if folding is None:
        return raw
    if isinstance(folding, _ListFolding):
        items = try_decode(_ITEMS, raw)
        return raw if items is None else encode_json([msgspec.Raw(_fold_json(item, folding.items)) for item in items])
    members = try_decode(_MEMBERS, raw)
    if members is None:
        return raw
    if isinstance(folding, _MapFolding):
        kept = {key: value for key, value in members.items() if folding.keeps_null or value != _NULL}
        return encode_json({key: msgspec.Raw(_fold_json(value, folding.values)) for key, value in kept.items()})
    folded = {}
    for key, value in members.items():
        named = folding.fields.get(key.lower())
        if named is not None and value != _NULL:
            folded[named[0]] = msgspec.Raw(_fold_json(value, named[1]))
    return encode_json(folded)


def _is_spelled_as_fields(value: msgspec.Raw, folding: _Folding) -> bool:
    """Like `is_spelled_as_fields`; a value of a wrong type has no keys.

    The first item of a list stands for all: no writer spells the keys of one type in two ways, and the API server,
    not the author of the pod, wrote its JSON.
    """
    if isinstance(folding, _ListFolding):
        return all(_is_spelled_as_fields(item, folding.items) for item in (try_decode(_ITEMS, value) or [])[:1])
    if not isinstance(folding, _StructFolding):
        return True
    members = try_decode(_MEMBERS, value) or {}
    return all(folding.fields.get(key.lower(), (key,))[0] == key for key in members) and all(
        _is_spelled_as_fields(members[name], inner) for name, inner in folding.structs.items() if name in members
    )


_NULL = msgspec.Raw(b"null")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
