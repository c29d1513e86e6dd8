"""What kube-scheduler sends and reads for preempt: victims by node, as uids or as whole Pods; the answer is uids.

Keys are read in any letter case, as everywhere. Preempt is rare (one call for a pod that fits nowhere), so there is
no fast way for exact spellings. https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1#ExtenderPreemptionArgs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from extender.wire.codec import MalformedCallError, decode_folded, read_guarded
from vrampack.cards.pod import Pod
from vrampack.kube.objects import ObjectMeta, PodObject, PodSpec, to_pod


class MetaPod(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(default="", name="UID")


class MetaVictims(msgspec.Struct, frozen=True):
    pods: list[MetaPod] = msgspec.field(default_factory=list, name="Pods")
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


def read_preemption_args(body: bytes, resource: str) -> PreemptionProposal:
    """Raises `MalformedCallError` saying what to send."""
    return read_guarded(_read, body, resource)


class _PreemptorSpec(PodSpec, frozen=True, rename="camel"):
    preemption_policy: str | None = None


class _Preemptor(PodObject, frozen=True):
    spec: _PreemptorSpec = _PreemptorSpec()


class _Victim(msgspec.Struct, frozen=True):
    """A whole Pod, of which only the uid is believed."""

    metadata: ObjectMeta = ObjectMeta()


class _Victims(msgspec.Struct, frozen=True):
    pods: list[_Victim] = msgspec.field(default_factory=list, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")

    def to_meta_victims(self) -> MetaVictims:
        return MetaVictims([MetaPod(pod.metadata.uid) for pod in self.pods], self.violations)


class _PreemptionArgs(msgspec.Struct, frozen=True):
    """`NodeNameToMetaVictims` is set when nodeCacheCapable is true, the other when not."""

    pod: _Preemptor | None = msgspec.field(default=None, name="Pod")
    meta: dict[str, MetaVictims | None] | None = msgspec.field(default=None, name="NodeNameToMetaVictims")
    full: dict[str, _Victims | None] | None = msgspec.field(default=None, name="NodeNameToVictims")


def _read(body: bytes, resource: str) -> PreemptionProposal:
    args = decode_folded(body, _PreemptionArgs)
    if args.pod is None:
        raise MalformedCallError("Pod is missing: send the scheduler's ExtenderPreemptionArgs")
    if args.meta is not None:
        victims = {name: each or MetaVictims() for name, each in args.meta.items()}
    elif args.full is not None:
        victims = {name: each.to_meta_victims() if each else MetaVictims() for name, each in args.full.items()}
    else:
        raise MalformedCallError(
            "NodeNameToMetaVictims and NodeNameToVictims are missing: send the proposed victims of each node"
        )
    for name, each in victims.items():
        if not all(pod.uid for pod in each.pods):
            raise MalformedCallError(f"victims of node {name[:60]!r}: one has no uid; send the uid of every pod")
    return PreemptionProposal(to_pod(args.pod, resource=resource), args.pod.spec.preemption_policy != "Never", victims)
