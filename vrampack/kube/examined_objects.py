"""Pods and nodes with all that kube-scheduler's filters read, for the few that are looked at closely.

The ledger of a whole cluster needs none of it: these objects are read one node at a time.
"""

from __future__ import annotations

import msgspec

from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.objects import (
    ContainerObject,
    LocalPodObject,
    LocalPodSpec,
    NodeObject,
    ObjectMeta,
    ResourceRequirements,
)
from vrampack.kube.taints import Taint, Toleration


class PortMapping(msgspec.Struct, frozen=True, rename="camel"):
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class PortedContainer(ContainerObject, frozen=True, rename="camel", gc=False):
    ports: list[PortMapping] | None = None


class SelectorRequirement(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


def _is_one_node(field: SelectorRequirement) -> bool:
    return field.key == "metadata.name" and field.operator == "In" and len(field.values or ()) == 1


class NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(msgspec.Struct, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinity(msgspec.Struct, frozen=True):
    """Also the anti-affinity: only whether there are required terms is of interest."""

    required: list[msgspec.Raw] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpread(msgspec.Struct, frozen=True, rename="camel"):
    when_unsatisfiable: str = ""


class ExaminedPodSpec(LocalPodSpec, frozen=True, rename="camel"):
    containers: list[PortedContainer] | None = None  # type: ignore[assignment]  # the same containers, with their ports
    init_containers: list[PortedContainer] | None = None  # type: ignore[assignment]  # as above
    resources: ResourceRequirements | None = None
    """For all its containers together, beside or in place of their own."""
    node_selector: dict[str, str] | None = None  # type: ignore[assignment]  # decoded, here and below
    affinity: Affinity | None = None  # type: ignore[assignment]
    tolerations: list[Toleration] | None = None  # type: ignore[assignment]
    topology_spread_constraints: list[TopologySpread] | None = None
    preemption_policy: str | None = None
    termination_grace_period_seconds: int | None = None

    @property
    def names_its_node(self) -> bool:
        """Whether it may be on one node only, which it names, like the pods of a DaemonSet."""
        affinity = None if self.affinity is None else self.affinity.node_affinity
        terms = None if affinity is None or affinity.required is None else affinity.required.node_selector_terms
        return bool(terms) and all(any(map(_is_one_node, term.match_fields or ())) for term in terms or ())

    @property
    def depends_on_other_pods(self) -> bool:
        """Whether required rules of it depend on which pods run elsewhere."""
        affinity = self.affinity or Affinity()
        rules = (affinity.pod_affinity, affinity.pod_anti_affinity)
        spreads = self.topology_spread_constraints or ()
        return any(rule is not None and rule.required for rule in rules) or any(
            spread.when_unsatisfiable == "DoNotSchedule" for spread in spreads
        )


class ExaminedPod(LocalPodObject, frozen=True):
    """A v1.Pod."""

    spec: ExaminedPodSpec = ExaminedPodSpec()


class ExaminedNodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] | None = None


_NODE_SPEC = msgspec.json.Decoder(ExaminedNodeSpec | None)


def decode_node_spec(node: NodeObject) -> ExaminedNodeSpec:
    """Of a node as a watch shows it. What cannot be read takes no pods."""
    try:
        return _NODE_SPEC.decode(node.spec) or ExaminedNodeSpec()
    except UNDECODABLE:
        return ExaminedNodeSpec(unschedulable=True)


class ExaminedNode(NodeObject, frozen=True):
    """A v1.Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ExaminedNodeSpec = ExaminedNodeSpec()  # type: ignore[assignment]  # decoded
