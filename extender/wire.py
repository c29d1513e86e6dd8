"""What kube-scheduler sends and reads: the extender protocol, as the scheduler's Go types spell it.

Go reads keys in any letter case, so we do too: the fast way takes the exact names that every scheduler sends, and
only a body in which that finds no GPU request is folded and read again. Unknown fields are skipped, nulls are empty.
https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from cards.pod import Pod
from kube.objects import PodObject, to_pod

MAX_SCORE = 10
"""`MaxExtenderPriority`; the scheduler multiplies it by weight and by 10."""


class WireError(ValueError):
    """The body is not what the scheduler sends; the message says what to change."""


class ExtenderArgs(msgspec.Struct, frozen=True):
    """Filter and prioritize. `Nodes` is set instead of `NodeNames` when nodeCacheCapable is false."""

    pod: PodObject | None = msgspec.field(default=None, name="Pod")
    node_names: list[str] | None = msgspec.field(default=None, name="NodeNames")
    nodes: msgspec.Raw | None = msgspec.field(default=None, name="Nodes")


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


_Wire = TypeVar("_Wire", ExtenderArgs, BindingArgs)

encode = msgspec.json.Encoder().encode
_ARGS = msgspec.json.Decoder(ExtenderArgs)
_BINDING = msgspec.json.Decoder(BindingArgs)


def read_args(body: bytes, resource: str) -> tuple[Pod, list[str]]:
    """The pod and the candidate names, in order, each once. Raises `WireError`."""
    args = _decode(_ARGS, body)
    pod = to_pod(args.pod, resource=resource) if args.pod is not None else None
    if pod is None or pod.ask is None or args.node_names is None:
        args = _fold(body, ExtenderArgs)
        pod = to_pod(args.pod, resource=resource) if args.pod is not None else None
    if pod is None:
        raise WireError("Pod is missing: send the scheduler's ExtenderArgs")
    if args.node_names is None:
        if args.nodes is not None and bytes(args.nodes).strip() != b"null":
            raise WireError(
                "Nodes is set and NodeNames is not: set nodeCacheCapable: true for this extender in the "
                "KubeSchedulerConfiguration; whole Node objects are not read"
            )
        raise WireError("NodeNames is missing: send the candidates' names (nodeCacheCapable: true)")
    return pod, list(dict.fromkeys(args.node_names))


def read_binding(body: bytes) -> BindingArgs:
    """A bind call with all four fields set. Raises `WireError` naming the first that is not."""
    args = _decode(_BINDING, body)
    if not all((args.pod_name, args.pod_namespace, args.pod_uid, args.node)):
        args = _fold(body, BindingArgs)
    for field in msgspec.structs.fields(BindingArgs):
        if not getattr(args, field.name):
            raise WireError(f"{field.encode_name} is missing or empty: send the scheduler's ExtenderBindingArgs")
    return args


def _decode(decoder: msgspec.json.Decoder[_Wire], body: bytes) -> _Wire:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"the body is not what a scheduler sends: {error}") from error


def _fold(body: bytes, kind: type[_Wire]) -> _Wire:
    """Read the body again with its keys in any letter case."""
    try:
        return msgspec.json.decode(msgspec.json.encode(_folded(msgspec.json.decode(body), kind)), type=kind)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise WireError(f"the body is not what a scheduler sends: {error}") from error


def _folded(value: Any, kind: Any) -> Any:  # noqa: ANN401 - any JSON value, any annotation of a field
    """`value` with the keys of every struct spelled as its fields are; keys of maps are left alone."""
    if get_origin(kind) in (Union, types.UnionType):
        for choice in get_args(kind):
            value = _folded(value, choice)
        return value
    if get_origin(kind) is list and isinstance(value, list):
        return [_folded(item, get_args(kind)[0]) for item in value]
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict)):
        return value
    hints = get_type_hints(kind)
    spelled = {field.encode_name.lower(): field for field in msgspec.structs.fields(kind)}
    folded = {}
    for key, item in value.items():
        field = spelled.get(key.lower())
        if field is not None:
            folded[field.encode_name] = _folded(item, hints[field.name])
    return folded
