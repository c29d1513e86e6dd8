"""The fields that we read from API objects, and their conversion to values of `cards`.

Unknown fields are skipped, missing ones and nulls are empty. Quantities and environments stay undecoded unless a
container names our resource.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

import msgspec

from vrampack.cards import well_known
from vrampack.cards.env_injection import MIRROR_ANNOTATION, VISIBLE_DEVICES_VARIABLE
from vrampack.cards.host_room import HostResources
from vrampack.cards.node_annotations import NodeReading, read_node
from vrampack.cards.pod import Pod
from vrampack.cards.records import read_record
from vrampack.cards.request import ContainerKind, ContainerSpec, read_pod_request, take_requesting_containers
from vrampack.kube.decoding import NULL, UNDECODABLE
from vrampack.kube.late_binding import LateBindingSpec, may_bind_late, read_group
from vrampack.kube.pod_conditions import read_conditions, read_failed_attempt

FINISHED_PHASES = ("Succeeded", "Failed")
"""A pod in one of these phases never runs again."""


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class ResourceRequirements(msgspec.Struct, frozen=True, gc=False):
    limits: dict[str, msgspec.Raw] | None = None
    requests: dict[str, msgspec.Raw] | None = None


class ContainerObject(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    env: msgspec.Raw = NULL


class PodSpec(LateBindingSpec, frozen=True, rename="camel"):
    node_name: str | None = None
    containers: list[ContainerObject] | None = None
    init_containers: list[ContainerObject] | None = None
    priority: int | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[msgspec.Raw] | None = None
    overhead: dict[str, msgspec.Raw] | None = None
    node_selector: msgspec.Raw = NULL
    affinity: msgspec.Raw = NULL
    tolerations: msgspec.Raw = NULL


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str | None = None
    nominated_node_name: str | None = None
    conditions: msgspec.Raw = NULL


class SecretObject(msgspec.Struct, frozen=True):
    """A v1.Secret."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, bytes] | None = None


class PodObject(msgspec.Struct, frozen=True):
    """A v1.Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class OwnerReference(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool = False


class OwnedObjectMeta(ObjectMeta, frozen=True, rename="camel"):
    owner_references: list[OwnerReference] | None = None


class ContainerRun(msgspec.Struct, frozen=True, rename="camel"):
    started_at: str | None = None


class ContainerState(msgspec.Struct, frozen=True):
    running: ContainerRun | None = None
    terminated: ContainerRun | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    """Empty until the container is created; then the id of the last one."""
    state: ContainerState | None = None

    @property
    def is_running(self) -> bool:
        return self.state is not None and self.state.running is not None


class LocalPodStatus(PodStatus, frozen=True, rename="camel"):
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None

    def list_containers(self) -> list[ContainerStatus]:
        """Init containers first."""
        return [*(self.init_container_statuses or ()), *(self.container_statuses or ())]


class LocalPodSpec(PodSpec, frozen=True, rename="camel"):
    runtime_class_name: str | None = None


class LocalPodObject(PodObject, frozen=True):
    """A v1.Pod with owners and containers, which the ledger of a whole cluster does not need."""

    metadata: OwnedObjectMeta = OwnedObjectMeta()
    spec: LocalPodSpec = LocalPodSpec()
    status: LocalPodStatus = LocalPodStatus()

    @property
    def is_static(self) -> bool:
        """Whether it comes from a file on its node; the API server has its mirror."""
        owners = self.metadata.owner_references or ()
        return MIRROR_ANNOTATION in (self.metadata.annotations or {}) or any(owner.kind == "Node" for owner in owners)

    @property
    def is_controlled(self) -> bool:
        """Whether a controller creates a replacement when it is gone."""
        return any(owner.controller and owner.kind != "Node" for owner in self.metadata.owner_references or ())

    @property
    def is_running(self) -> bool:
        """Whether all its containers run, sidecars included."""
        sidecars = {each.name for each in self.spec.init_containers or () if each.restart_policy == "Always"}
        needed = {each.name for each in self.spec.containers or ()} | sidecars
        return bool(needed) and needed <= {each.name for each in self.status.list_containers() if each.is_running}


class NodeAddress(msgspec.Struct, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, msgspec.Raw] | None = None
    addresses: list[NodeAddress] | None = None


class NodeObject(msgspec.Struct, frozen=True):
    """A v1.Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = NULL
    status: NodeStatus = NodeStatus()


class NamespaceObject(msgspec.Struct, frozen=True):
    """A v1.Namespace."""

    metadata: ObjectMeta = ObjectMeta()


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class LeaseObject(msgspec.Struct, frozen=True):
    """A coordination.k8s.io/v1 Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class AccessReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class AccessReview(msgspec.Struct, frozen=True):
    """The answer to a SubjectAccessReview or SelfSubjectAccessReview of authorization.k8s.io/v1."""

    status: AccessReviewStatus = AccessReviewStatus()


class NodeSystemInfo(msgspec.Struct, frozen=True, rename="camel"):
    container_runtime_version: str = ""
    kubelet_version: str = ""


class NodeCondition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class LocalNodeStatus(NodeStatus, frozen=True, rename="camel"):
    capacity: dict[str, msgspec.Raw] | None = None
    conditions: list[NodeCondition] | None = None
    node_info: NodeSystemInfo = NodeSystemInfo()


class LocalNodeObject(NodeObject, frozen=True):
    """A v1.Node for its own agent: with what every plugin on it offers."""

    status: LocalNodeStatus = LocalNodeStatus()


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """What a Status is about: `kind` is the plural name of a resource."""

    kind: str = ""
    name: str = ""
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True):
    """A v1.Status, the API server's answer when it refuses a call."""

    kind: str = ""
    status: str = ""
    code: int | None = None
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch; what `object` is depends on the resource and on `type`."""

    type: str
    object: msgspec.Raw


class ObjectFieldSelector(msgspec.Struct, frozen=True, rename="camel"):
    field_path: str = ""


class EnvVarSource(msgspec.Struct, frozen=True, rename="camel"):
    field_ref: ObjectFieldSelector | None = None


class EnvVar(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    value_from: EnvVarSource | None = None


_ENV = msgspec.json.Decoder(list[EnvVar] | None)
_TEXT = msgspec.json.Decoder(str)


def to_pod(
    pod: PodObject,
    *,
    resource: str = well_known.MEMORY_RESOURCE,
    label_keys: Collection[str] = (),
    host: HostResources | None = None,
) -> Pod:
    """The pod as the ledger sees it.

    `label_keys` are the labels that the cluster's rules name; `host` is what it takes of its host, if that is read
    (`kube.host_requests`).
    """
    annotations = pod.metadata.annotations or {}
    specs = build_container_specs(pod.spec, resource)
    labels = pod.metadata.labels or {}
    request = read_pod_request(specs, labels, annotations, resource=resource, host=host) if specs else None
    is_waiting = request is not None and not pod.spec.node_name
    conditions = read_conditions(pod.status.conditions) if is_waiting else {}
    preempting = conditions.get(well_known.PREEMPTION_CONDITION)
    answer = conditions.get(well_known.PLACEMENT_CONDITION)
    preemption_node = "" if preempting is None or preempting.status != "True" else preempting.message or ""
    return Pod(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node_name=pod.spec.node_name or "",
        request=request,
        record=read_record(annotations, request),
        is_terminating=pod.metadata.deletion_timestamp is not None,
        is_finished=pod.status.phase in FINISHED_PHASES,
        priority=pod.spec.priority or 0,
        nominated_node=pod.status.nominated_node_name or "",
        preemption_node=preemption_node,
        created_at=pod.metadata.creation_timestamp or "",
        resource_version=pod.metadata.resource_version,
        scheduler_name=pod.spec.scheduler_name or "",
        rule_labels=_select_labels(labels, label_keys) if label_keys else (),
        may_bind_late=is_waiting and may_bind_late(pod.spec, labels),
        group=read_group(pod.spec, pod.metadata.namespace, labels),
        failed_attempt=read_failed_attempt(conditions.get("PodScheduled")),
        told_reason="" if answer is None else answer.reason or "",
        is_gated=bool(pod.spec.scheduling_gates),
    )


def _select_labels(labels: Mapping[str, str], keys: Collection[str]) -> tuple[tuple[str, str], ...]:
    return tuple((key, labels[key]) for key in sorted(keys) if key in labels)


def to_node(node: NodeObject, *, unit_mib: int, resource: str, count_resource: str) -> NodeReading:
    """The node's facts, and the problems of what could not be read."""
    allocatable = node.status.allocatable or {}
    addresses = node.status.addresses or []
    return read_node(
        node.metadata.name,
        node.metadata.annotations or {},
        {name: _text(allocatable[name]) for name in (resource, count_resource) if name in allocatable},
        unit_mib=unit_mib,
        address=next((each.address for each in addresses if each.type == "InternalIP"), ""),
        resource=resource,
        count_resource=count_resource,
    )


def build_container_specs(spec: PodSpec, resource: str) -> list[ContainerSpec]:
    """The containers that name the resource, init containers first, in the order of the spec. See `take_requesting_containers`."""
    containers = chain(
        ((each, at, True) for at, each in enumerate(spec.init_containers or ())),
        ((each, at, False) for at, each in enumerate(spec.containers or ())),
    )
    return take_requesting_containers(
        _build_container_spec(each, at, resource, is_init=is_init) for each, at, is_init in containers
    )


def _build_container_spec(
    container: ContainerObject, index: int, resource: str, *, is_init: bool
) -> ContainerSpec | None:
    resources = container.resources
    if resources is None:
        return None
    quantity = (resources.requests or {}).get(resource) or (resources.limits or {}).get(resource)
    if quantity is None:
        return None
    kind: ContainerKind = "main"
    if is_init:
        kind = "sidecar" if container.restart_policy == "Always" else "init"
    return ContainerSpec(container.name, kind, index, _text(quantity), _has_reference(container))


def build_admission_entry(container: str) -> EnvVar:
    """The entry of the container's environment by which admission gives it the cards in the pod's annotation for it."""
    return EnvVar(VISIBLE_DEVICES_VARIABLE, EnvVarSource(ObjectFieldSelector(_format_devices_path(container))))


def _format_devices_path(container: str) -> str:
    return f"metadata.annotations['{well_known.VISIBLE_DEVICES_PREFIX}{container}']"


def _has_reference(container: ContainerObject) -> bool:
    """Whether admission set the container's visible devices from the pod's annotation for that container.

    Of several entries with one name the container gets the last.
    """
    try:
        env = _ENV.decode(container.env) or []
    except UNDECODABLE:
        return False
    for each in reversed(env):
        if each.name == VISIBLE_DEVICES_VARIABLE:
            source = each.value_from
            reference = None if source is None else source.field_ref
            return reference is not None and reference.field_path == _format_devices_path(container.name)
    return False


def _text(quantity: msgspec.Raw) -> str:
    """A quantity as written: a text, or a number from older writers. Anything else will not parse as a quantity."""
    try:
        return _TEXT.decode(quantity)
    except UNDECODABLE:
        return bytes(quantity).decode(errors="replace")
