"""What kube-scheduler sends and reads for preempt: victims by node, as uids or as whole Pods; the answer is uids.

Keys are read in any letter case, as everywhere. The decoder alone reads uids if the keys are spelled as schedulers do. Whole
Pods, which a scheduler with nodeCacheCapable never sends, are folded. https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1#ExtenderPreemptionArgs
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from extender.wire.codec import MalformedCallError, decode_folded, decode_in_any_case, read_guarded, try_decode
from vrampack.cards.pod import Pod
from vrampack.kube.objects import PodObject, PodSpec, to_pod


class MetaPod(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An unknown key may be a field in another letter case: then the body is folded, which drops unknown keys."""

    uid: str = msgspec.field(default="", name="UID")


class MetaVictims(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    pods: tuple[MetaPod, ...] = msgspec.field(default=(), name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class PreemptionResult(msgspec.Struct, frozen=True):
    victims: Mapping[str, MetaVictims] = msgspec.field(name="NodeNameToMetaVictims")


@dataclass(frozen=True, slots=True)
class PreemptionProposal:
    """A preempt call: the pod that wants room, and the pods that the scheduler would evict for it, by node."""

    pod: Pod
    may_preempt: bool
    victims: Mapping[str, MetaVictims]
    """By node, in the order sent; a node may have none."""


def read_preemption_args(body: bytes, resource: str, label_keys: Collection[str] = ()) -> PreemptionProposal:
    """Read a preempt call. Raises `MalformedCallError` saying what to send."""
    return read_guarded(_read, body, resource, label_keys)


class _PreemptorSpec(PodSpec, frozen=True, rename="camel"):
    preemption_policy: str | None = None


class _Preemptor(PodObject, frozen=True):
    spec: _PreemptorSpec = _PreemptorSpec()


class _VictimMeta(msgspec.Struct, frozen=True):
    uid: str = ""


class _Victim(msgspec.Struct, frozen=True):
    """A whole Pod, of which only the uid is used."""

    metadata: _VictimMeta = _VictimMeta()


class _Victims(msgspec.Struct, frozen=True):
    pods: list[_Victim] = msgspec.field(default_factory=list, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")

    def to_meta_victims(self) -> MetaVictims:
        return MetaVictims(tuple(MetaPod(pod.metadata.uid) for pod in self.pods), self.violations)


_NULL = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct, frozen=True):
    """`ExtenderPreemptionArgs` before its pod is read. The uids are set when nodeCacheCapable is true."""

    pod: msgspec.Raw = msgspec.field(default=_NULL, name="Pod")
    meta: dict[str, MetaVictims | None] | None = msgspec.field(default=None, name="NodeNameToMetaVictims")


class _WholeVictims(msgspec.Struct, frozen=True):
    """Set when nodeCacheCapable is false."""

    by_node: dict[str, _Victims | None] | None = msgspec.field(default=None, name="NodeNameToVictims")


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_POD = msgspec.json.Decoder(_Preemptor)


def _read(body: bytes, resource: str, label_keys: Collection[str]) -> PreemptionProposal:
    envelope = try_decode(_ENVELOPE, body)
    if envelope is None or envelope.pod == _NULL or envelope.meta is None:
        envelope = decode_folded(body, _Envelope)
    if envelope.pod == _NULL:
        raise MalformedCallError("Pod is missing: send the scheduler's ExtenderPreemptionArgs")
    pod = decode_in_any_case(envelope.pod, _POD)
    victims = _read_whole_victims(body) if envelope.meta is None else envelope.meta
    by_node = {name: each or MetaVictims() for name, each in victims.items()}
    for name, each in by_node.items():
        if "" in {victim.uid for victim in each.pods}:
            raise MalformedCallError(f"victims of node {name[:60]!r}: one has no uid; send the uid of every pod")
    return PreemptionProposal(
        to_pod(pod, resource=resource, label_keys=label_keys), pod.spec.preemption_policy != "Never", by_node
    )


def _read_whole_victims(body: bytes) -> dict[str, MetaVictims | None]:
    victims = decode_folded(body, _WholeVictims).by_node
    if victims is None:
        raise MalformedCallError(
            "NodeNameToMetaVictims and NodeNameToVictims are missing: send the proposed victims of each node"
        )
    return {name: each.to_meta_victims() if each else None for name, each in victims.items()}
