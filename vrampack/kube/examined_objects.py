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

MAX_LISTED_TERMS = 3


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

    def __str__(self) -> str:
        """As kubectl writes selectors."""
        values = self.values or []
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case "Gt" | "Lt":
                return f"{self.key}{'>' if self.operator == 'Gt' else '<'}{''.join(values)}"
            case "In" if len(values) == 1:
                return f"{self.key}={values[0]}"
        return f"{self.key} {self.operator.lower()} ({','.join(values)})"


def _is_one_node(field: SelectorRequirement) -> bool:
    return field.key == "metadata.name" and field.operator == "In" and len(field.values or ()) == 1


class NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None

    def __str__(self) -> str:
        return ",".join(map(str, (*(self.match_expressions or ()), *(self.match_fields or ()))))


class NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """One of its terms must hold; without terms it selects no node."""

    node_selector_terms: list[NodeSelectorTerm] | None = None

    def __str__(self) -> str:
        terms = self.node_selector_terms or ()
        more = f" or {len(terms) - MAX_LISTED_TERMS} more" if len(terms) > MAX_LISTED_TERMS else ""
        return " or ".join(map(str, terms[:MAX_LISTED_TERMS])) + more


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
    def required_nodes(self) -> NodeSelector | None:
        """Its required node affinity."""
        affinity = None if self.affinity is None else self.affinity.node_affinity
        return None if affinity is None else affinity.required

    @property
    def label_keys(self) -> set[str]:
        """The labels of nodes that its selector and its required node affinity name."""
        terms = (None if self.required_nodes is None else self.required_nodes.node_selector_terms) or ()
        return {*(self.node_selector or ()), *(each.key for term in terms for each in term.match_expressions or ())}

    @property
    def names_its_node(self) -> bool:
        """Whether it may be on one node only, which it names, like the pods of a DaemonSet."""
        terms = None if self.required_nodes is None else self.required_nodes.node_selector_terms
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
