"""The arguments of filter and prioritize: one pod, as the scheduler has it, and the names of its candidates.

Rejected pods come back with nearly every event of the cluster, hundreds at a time, byte for byte the same. So each pod is
decoded once and cached. Its author controls its size, so the key is a digest of its bytes rather than the bytes, and the
cache is bounded by an estimate of what it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

import msgspec
from cachetools import LRUCache

from extender.wire.codec import (
    MalformedCallError,
    decode_folded,
    decode_in_any_case,
    encode_json,
    is_spelled_as_fields,
    read_guarded,
    try_decode,
)
from vrampack.cards.host_room import HostResources
from vrampack.cards.pod import Pod
from vrampack.kube.objects import PodObject, PodSpec, to_pod

MAX_CACHE_BYTES = 8 * 1024 * 1024
"""For 5,000 usual pods, more than wait in the schedulers of large clusters at a time."""
MAX_SELECTOR_CHARACTERS = 200
LARGE_POD_BYTES = 128 * 1024
"""About 2 ms; a usual pod has 5 KB."""
PLAIN_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "name", "nfs", "projected", "secret"}
)
"""Volume kinds, and the field `name`, that make no node better than another. Every pod has a projected volume."""


_NULL = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class SchedulingRequest:
    """A pod that wants a node."""

    pod: Pod
    scheduler_name: str
    prefers_nodes: bool
    """Whether the scheduler's own scores matter to it: volumes, resource claims, preferred affinity, soft spread."""
    node_selector: str
    """For people: `pool=a100`."""


class HostRequestReader(Protocol):
    """Reads what a pod asks of its host, when a policy needs it."""

    def read_request(self, spec: PodSpec) -> HostResources | None: ...


class ArgsReader:
    """Reads `ExtenderArgs`. https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1#ExtenderArgs"""

    def __init__(self, resource: str, label_keys: Collection[str] = (), hosts: HostRequestReader | None = None) -> None:
        self._resource = resource
        self._label_keys = label_keys
        self._hosts = hosts
        self._peeked: tuple[bytes, tuple[SchedulingRequest, list[str]]] | None = None
        """The last peeked body and its decoded content, until `read_args` is called."""
        self._cache: LRUCache[bytes, SchedulingRequest] = LRUCache(MAX_CACHE_BYTES, getsizeof=estimate_kept_bytes)

    def read_args(self, body: bytes) -> tuple[SchedulingRequest, list[str]]:
        """The pod and the candidate names as they were sent. Raises `MalformedCallError`."""
        peeked, self._peeked = self._peeked, None
        return peeked[1] if peeked is not None and peeked[0] is body else read_guarded(self._read, body)

    def peek_args(self, body: bytes) -> SchedulingRequest:
        """The pod of a call; a `read_args` that follows does not decode it again. Raises as `read_args` does."""
        args = read_guarded(self._read, body)
        self._peeked = body, args
        return args[0]

    def forget_pods(self) -> None:
        """Drop the cache: other fields of pods are read from now on."""
        self._cache.clear()

    def read_large_pod(self, body: bytes) -> Iterator[None]:
        """Read the pod of a call ahead of `read_args`, step by step: each step takes 1 or 2 ms for a megabyte.

        It skips a cached pod, and leaves one with keys in another letter case or of a wrong type to `read_args`.
        """
        with suppress(msgspec.MsgspecError, ValueError, RecursionError, OverflowError):
            raw = _ENVELOPE.decode(body).pod
            digest = _compute_digest(raw)
            yield
            if digest in self._cache or not is_spelled_as_fields(raw, SchedulingPod):
                return
            yield
            pod = _POD.decode(raw)
            yield
            self._cache[digest] = self._build_request(pod)

    def _read(self, body: bytes) -> tuple[SchedulingRequest, list[str]]:
        envelope = try_decode(_ENVELOPE, body)
        if envelope is None or envelope.pod == _NULL or envelope.node_names is None:
            envelope = decode_folded(body, _Envelope)
        if envelope.pod == _NULL:
            raise MalformedCallError("Pod is missing: send the scheduler's ExtenderArgs")
        if envelope.node_names is None:
            raise _build_missing_names_error(envelope)
        return self._read_pod(envelope.pod), envelope.node_names

    def _read_pod(self, raw: msgspec.Raw) -> SchedulingRequest:
        digest = _compute_digest(raw)
        scheduling_request = self._cache.get(digest)
        if scheduling_request is None:
            scheduling_request = self._build_request(decode_in_any_case(raw, _POD))
            with suppress(ValueError):  # larger than the whole cache
                self._cache[digest] = scheduling_request
        return scheduling_request

    def _build_request(self, pod: SchedulingPod) -> SchedulingRequest:
        return SchedulingRequest(
            pod=to_pod(
                pod,
                resource=self._resource,
                label_keys=self._label_keys,
                host=self._hosts.read_request(pod.spec) if self._hosts else None,
            ),
            scheduler_name=pod.spec.scheduler_name or "",
            prefers_nodes=_prefers_nodes(pod.spec),
            node_selector=_describe_selector(pod.spec.node_selector),
        )


def has_large_pod(body: bytes) -> bool:
    """Whether reading the pod of this call takes milliseconds. The pod comes first, as kube-scheduler writes it."""
    return len(body) > LARGE_POD_BYTES and body.find(b'"NodeNames":[', 0, LARGE_POD_BYTES) < 0


def _compute_digest(raw: msgspec.Raw) -> bytes:
    return sha256(raw, usedforsecurity=False).digest()


def estimate_kept_bytes(scheduling_request: SchedulingRequest) -> int:
    """About its size in memory, cache entry included: two and a half times its text, measured with few containers and with many."""
    return 256 + 5 * len(encode_json(scheduling_request)) // 2


class _Preferences(msgspec.Struct, frozen=True, rename="camel"):
    preferred_during_scheduling_ignored_during_execution: list[msgspec.Raw] | None = None


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _Preferences | None = None
    pod_affinity: _Preferences | None = None
    pod_anti_affinity: _Preferences | None = None


class _Spread(msgspec.Struct, frozen=True, rename="camel"):
    when_unsatisfiable: str = ""


class SchedulingPodSpec(PodSpec, frozen=True, rename="camel"):
    """A v1.PodSpec, with the fields by which a scheduler ranks nodes."""

    scheduler_name: str | None = None
    affinity: _Affinity | None = None  # type: ignore[assignment]  # decoded
    topology_spread_constraints: list[_Spread] | None = None


class SchedulingPod(PodObject, frozen=True):
    """A v1.Pod."""

    spec: SchedulingPodSpec = SchedulingPodSpec()


class _Envelope(msgspec.Struct, frozen=True):
    """`ExtenderArgs` before its pod is read. `Nodes` is set instead of `NodeNames` when nodeCacheCapable is false."""

    pod: msgspec.Raw = msgspec.field(default=_NULL, name="Pod")
    node_names: list[str] | None = msgspec.field(default=None, name="NodeNames")
    nodes: msgspec.Raw = msgspec.field(default=_NULL, name="Nodes")


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_POD = msgspec.json.Decoder(SchedulingPod)
_SELECTOR = msgspec.json.Decoder(dict[str, str] | None)


def _prefers_nodes(spec: SchedulingPodSpec) -> bool:
    affinity = spec.affinity or _Affinity()
    terms = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity)
    return (
        spec.has_resource_claims
        or any(not volume.keys() <= PLAIN_VOLUMES for volume in spec.list_volumes())
        or any(each is not None and each.preferred_during_scheduling_ignored_during_execution for each in terms)
        or any(each.when_unsatisfiable != "DoNotSchedule" for each in spec.topology_spread_constraints or ())
    )


def _describe_selector(raw: msgspec.Raw) -> str:
    selector = None if raw == _NULL else try_decode(_SELECTOR, raw)
    return ", ".join(f"{key}={value}" for key, value in sorted((selector or {}).items()))[:MAX_SELECTOR_CHARACTERS]


def _build_missing_names_error(envelope: _Envelope) -> MalformedCallError:
    if envelope.nodes == _NULL:
        return MalformedCallError("NodeNames is missing: send the candidates' names (nodeCacheCapable: true)")
    return MalformedCallError(
        "Nodes is set and NodeNames is not: set nodeCacheCapable: true for this extender in the "
        "KubeSchedulerConfiguration; whole Node objects are not read"
    )
