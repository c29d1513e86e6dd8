"""What filter and prioritize are called with: one pod, as the scheduler has it, and the names of its candidates.

A pod that was rejected comes back with nearly every event of the cluster, byte for byte the same, hundreds of them at a
time. So each pod is decoded once and kept.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import msgspec
from cachetools import LRUCache

from extender.wire.codec import MalformedCallError, decode_folded, is_struct_type, read_guarded, try_decode
from vrampack.cards.pod import Pod
from vrampack.kube.objects import PodObject, PodSpec, to_pod

CACHED_PODS = 4096
"""More than the schedulers of large clusters hold back at a time, and 20 MB with 4.5 KB each."""
MAX_CACHED_POD_BYTES = 65_536
PLAIN_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "name", "nfs", "projected", "secret"}
)
"""Kinds of volumes, and their name, by which no node is better than another. Every pod has a projected one."""


@dataclass(frozen=True, slots=True)
class SchedulingRequest:
    """A pod that wants a node."""

    pod: Pod
    scheduler_name: str
    prefers_nodes: bool
    """The scheduler's own scores matter to it: volumes, resource claims, preferred affinity, soft spread."""


class ArgsReader:
    """Reads `ExtenderArgs`. https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1#ExtenderArgs"""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._cache: LRUCache[bytes, SchedulingRequest] = LRUCache(maxsize=CACHED_PODS)

    def read_args(self, body: bytes) -> tuple[SchedulingRequest, list[str]]:
        """The pod and the candidate names as they were sent. Raises `MalformedCallError`."""
        return read_guarded(self._read, body)

    def _read(self, body: bytes) -> tuple[SchedulingRequest, list[str]]:
        envelope = try_decode(_ENVELOPE, body)
        if envelope is None:
            return self._fold(body)
        if envelope.node_names is None:
            if _is_set(envelope.nodes):
                raise _build_whole_nodes_error()
            return self._fold(body)
        raw = bytes(envelope.pod)
        scheduling_request = self._cache.get(raw)
        if scheduling_request is None:
            pod = try_decode(_POD, raw) if _is_spelled_as_fields(raw) else None
            if pod is None:
                return self._fold(body)
            scheduling_request = self._build_request(pod)
            if len(raw) <= MAX_CACHED_POD_BYTES:
                self._cache[raw] = scheduling_request
        return scheduling_request, envelope.node_names

    def _fold(self, body: bytes) -> tuple[SchedulingRequest, list[str]]:
        args = decode_folded(body, ExtenderArgs)
        if args.pod is None:
            raise MalformedCallError("Pod is missing: send the scheduler's ExtenderArgs")
        if args.node_names is None:
            if any(key.lower() == "nodes" and value is not None for key, value in msgspec.json.decode(body).items()):
                raise _build_whole_nodes_error()
            raise MalformedCallError("NodeNames is missing: send the candidates' names (nodeCacheCapable: true)")
        return self._build_request(args.pod), args.node_names

    def _build_request(self, pod: SchedulingPod) -> SchedulingRequest:
        return SchedulingRequest(
            pod=to_pod(pod, resource=self._resource),
            scheduler_name=pod.spec.scheduler_name or "",
            prefers_nodes=_prefers_nodes(pod.spec),
        )


class _Preferences(msgspec.Struct, frozen=True, rename="camel"):
    preferred_during_scheduling_ignored_during_execution: list[msgspec.Raw] | None = None


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _Preferences | None = None
    pod_affinity: _Preferences | None = None
    pod_anti_affinity: _Preferences | None = None


class _Spread(msgspec.Struct, frozen=True, rename="camel"):
    when_unsatisfiable: str = ""


class SchedulingPodSpec(PodSpec, frozen=True, rename="camel"):
    """A v1.PodSpec, with what a scheduler ranks nodes by."""

    scheduler_name: str | None = None
    volumes: list[dict[str, msgspec.Raw]] | None = None
    resource_claims: list[msgspec.Raw] | None = None
    affinity: _Affinity | None = None
    topology_spread_constraints: list[_Spread] | None = None


class SchedulingPod(PodObject, frozen=True):
    """A v1.Pod."""

    spec: SchedulingPodSpec = SchedulingPodSpec()


class ExtenderArgs(msgspec.Struct, frozen=True):
    """Filter and prioritize. `Nodes` is set instead of `NodeNames` when nodeCacheCapable is false."""

    pod: SchedulingPod | None = msgspec.field(default=None, name="Pod")
    node_names: list[str] | None = msgspec.field(default=None, name="NodeNames")


_NULL = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct, frozen=True):
    """`ExtenderArgs` before its parts are read."""

    pod: msgspec.Raw = msgspec.field(default=_NULL, name="Pod")
    node_names: list[str] | None = msgspec.field(default=None, name="NodeNames")
    nodes: msgspec.Raw = msgspec.field(default=_NULL, name="Nodes")


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_POD = msgspec.json.Decoder(SchedulingPod)
_KEY = re.compile(rb'"([A-Za-z]+)"\s*:')


def _prefers_nodes(spec: SchedulingPodSpec) -> bool:
    affinity = spec.affinity or _Affinity()
    terms = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity)
    return (
        bool(spec.resource_claims)
        or any(not volume.keys() <= PLAIN_VOLUMES for volume in spec.volumes or ())
        or any(each is not None and each.preferred_during_scheduling_ignored_during_execution for each in terms)
        or any(each.when_unsatisfiable != "DoNotSchedule" for each in spec.topology_spread_constraints or ())
    )


def _build_whole_nodes_error() -> MalformedCallError:
    return MalformedCallError(
        "Nodes is set and NodeNames is not: set nodeCacheCapable: true for this extender in the "
        "KubeSchedulerConfiguration; whole Node objects are not read"
    )


def _is_set(raw: msgspec.Raw) -> bool:
    return bytes(raw).strip() != b"null"


def _is_spelled_as_fields(pod: bytes) -> bool:
    """Whether every key that names a field in some letter case is spelled as the field is."""
    return all(_SPELLED.get(key.lower(), key) == key for key in _KEY.findall(pod))


def _field_names(kind: Any) -> Iterator[str]:  # noqa: ANN401 - any annotation of a field
    """The names of all fields of a struct and of the structs inside it, as JSON spells them."""
    for inner in get_args(kind):
        yield from _field_names(inner)
    if is_struct_type(kind):
        hints = get_type_hints(kind)
        for field in msgspec.structs.fields(kind):
            yield field.encode_name
            yield from _field_names(hints[field.name])


_SPELLED: Mapping[bytes, bytes] = types.MappingProxyType(
    {name.lower().encode(): name.encode() for name in _field_names(SchedulingPod)}
)
