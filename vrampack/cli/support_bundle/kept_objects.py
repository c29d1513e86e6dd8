"""What a bundle keeps of API objects, besides the snapshot: the fields that are named here, and no others.

Each structure below is the complete list, as in `simulator/replay/kept_fields.py`. Numbers, names, states and fixed words stay.
Text that a person or another program may write does not, except for messages that `keep_message` accepts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vrampack.cards import well_known
from vrampack.cli.support_bundle.redaction import redact_text
from vrampack.simulator.replay.kept_fields import KeptFields, KeptResources
from vrampack.simulator.resource_kinds import Object

NODE_LABELS = (
    well_known.ENFORCEMENT,
    well_known.INJECTION,
    "kubernetes.io/arch",
    "nvidia.com/gpu.present",
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.deploy.device-plugin",
    "nvidia.com/cuda.driver-version.full",
    "nvidia.com/mig.config",
)
OWN_COMPONENTS = ("vrampack-extender", "vrampack-agent")
LEFT_OUT = "[left out: not a message of ours]"
MAX_MESSAGE_LENGTH = 2000
_FIT_MESSAGE = re.compile(r"\d+/\d+ nodes are available")
"""How a scheduler's message about an unplaced pod begins."""
_PLUGIN_MESSAGES = ("PreStartContainer", "Allocate failed due to")
"""kubelet's messages that quote a device plugin."""


class ListedMetadata(KeptFields, frozen=True):
    name: str = ""
    namespace: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class LabelledMetadata(ListedMetadata, frozen=True):
    labels: dict[str, str] | None = None


class ListedCondition(KeptFields, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class NodeVersions(KeptFields, frozen=True):
    kernel_version: str | None = None
    os_image: str | None = None
    container_runtime_version: str | None = None
    kubelet_version: str | None = None
    architecture: str | None = None


class ListedNodeStatus(KeptFields, frozen=True):
    conditions: list[ListedCondition] | None = None
    node_info: NodeVersions | None = None


class BundledNode(KeptFields, frozen=True):
    metadata: LabelledMetadata
    status: ListedNodeStatus = ListedNodeStatus()


class EndedContainer(KeptFields, frozen=True):
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    started_at: str | None = None
    finished_at: str | None = None


class ContainerSituation(KeptFields, frozen=True):
    reason: str | None = None
    started_at: str | None = None


class ContainerStates(KeptFields, frozen=True):
    waiting: ContainerSituation | None = None
    running: ContainerSituation | None = None
    terminated: EndedContainer | None = None


class OwnContainerStatus(KeptFields, frozen=True):
    name: str = ""
    image: str | None = None
    image_id: str | None = msgspec.field(default=None, name="imageID")
    ready: bool | None = None
    restart_count: int = 0
    state: ContainerStates | None = None
    last_state: ContainerStates | None = None


class ContainerPort(KeptFields, frozen=True):
    name: str | None = None
    container_port: int = 0


class OwnContainer(KeptFields, frozen=True):
    name: str = ""
    image: str | None = None
    ports: list[ContainerPort] | None = None
    resources: KeptResources | None = None


class ConfigMapSource(KeptFields, frozen=True):
    name: str | None = None


class OwnVolume(KeptFields, frozen=True):
    config_map: ConfigMapSource | None = None


class OwnPodSpec(KeptFields, frozen=True):
    node_name: str | None = None
    service_account_name: str | None = None
    host_network: bool | None = None
    containers: list[OwnContainer] | None = None
    init_containers: list[OwnContainer] | None = None
    volumes: list[OwnVolume] | None = None


class OwnPodStatus(KeptFields, frozen=True):
    phase: str | None = None
    reason: str | None = None
    start_time: str | None = None
    conditions: list[ListedCondition] | None = None
    container_statuses: list[OwnContainerStatus] | None = None
    init_container_statuses: list[OwnContainerStatus] | None = None


class OwnPod(KeptFields, frozen=True):
    """A pod of the product itself."""

    metadata: ListedMetadata
    spec: OwnPodSpec = OwnPodSpec()
    status: OwnPodStatus = OwnPodStatus()

    @property
    def containers(self) -> tuple[OwnContainer, ...]:
        return (*(self.spec.init_containers or ()), *(self.spec.containers or ()))

    @property
    def statuses(self) -> Mapping[str, OwnContainerStatus]:
        listed = (*(self.status.init_container_statuses or ()), *(self.status.container_statuses or ()))
        return {each.name: each for each in listed}

    @property
    def restarts(self) -> int:
        return sum(each.restart_count for each in self.statuses.values())

    @property
    def is_ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())


class WorkloadStatus(KeptFields, frozen=True):
    """How many pods a workload wants and has: of a Deployment, and then of a DaemonSet."""

    observed_generation: int | None = None
    collision_count: int | None = None
    replicas: int | None = None
    updated_replicas: int | None = None
    ready_replicas: int | None = None
    available_replicas: int | None = None
    unavailable_replicas: int | None = None
    terminating_replicas: int | None = None
    desired_number_scheduled: int | None = None
    current_number_scheduled: int | None = None
    updated_number_scheduled: int | None = None
    number_ready: int | None = None
    number_available: int | None = None
    number_unavailable: int | None = None
    number_misscheduled: int | None = None


class OwnWorkload(KeptFields, frozen=True):
    """A Deployment or DaemonSet."""

    metadata: ListedMetadata
    status: WorkloadStatus = WorkloadStatus()
    kind: str = ""


class EventSubject(KeptFields, frozen=True):
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None


class EventSource(KeptFields, frozen=True):
    component: str | None = None
    host: str | None = None


class EventSeries(KeptFields, frozen=True):
    count: int = 0
    last_observed_time: str | None = None


class BundledEvent(KeptFields, frozen=True):
    involved_object: EventSubject = EventSubject()
    type: str | None = None
    reason: str | None = None
    message: str | None = None
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    reporting_component: str | None = None
    source: EventSource | None = None

    @property
    def component(self) -> str:
        return self.reporting_component or (self.source.component if self.source else None) or ""

    @property
    def last_time(self) -> str:
        observed = self.series.last_observed_time if self.series else None
        return observed or self.last_timestamp or self.event_time or self.first_timestamp or ""


def keep_node(item: Object) -> BundledNode:
    """The kept parts of a node. Raises `msgspec.ValidationError`, as all functions here do."""
    node = msgspec.convert(item, BundledNode)
    labels = {key: text for key, text in (node.metadata.labels or {}).items() if key in NODE_LABELS}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels or None))


def keep_own_pod(item: Object) -> OwnPod:
    """The kept parts of a pod of ours. Of its volumes, only names of ConfigMaps stay, which are read too."""
    pod = msgspec.convert(item, OwnPod)
    volumes = [each for each in pod.spec.volumes or () if each.config_map is not None]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, volumes=volumes or None))


def keep_workload(item: Object, kind: str) -> OwnWorkload:
    return msgspec.structs.replace(msgspec.convert(item, OwnWorkload), kind=kind)


def keep_event(item: Object) -> BundledEvent:
    event = msgspec.convert(item, BundledEvent)
    return msgspec.structs.replace(event, message=keep_message(event.component, event.message or ""))


def keep_message(component: str, message: str) -> str:
    """The message of an event or condition, redacted, if it looks like ours or like a scheduler's verdict."""
    is_ours = component in OWN_COMPONENTS or any(text in message for text in _PLUGIN_MESSAGES)
    if not is_ours and _FIT_MESSAGE.match(message) is None:
        return LEFT_OUT if message else ""
    return redact_text(message)[:MAX_MESSAGE_LENGTH]


def keep_scheduler_conditions(item: Object) -> list[Mapping[str, str]]:
    """The conditions that say why the scheduler did not place this pod, if the words are its own."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return [
        {
            "type": "PodScheduled",
            "status": str(each.get("status")),
            "reason": "Unschedulable" if each.get("reason") == "Unschedulable" else "",
            "message": keep_message("", str(each.get("message") or "")),
        }
        for each in conditions
        if isinstance(each, dict) and each.get("type") == "PodScheduled"
    ]


def select_readable(items: Iterable[Object], keep: Any, notes: list[str]) -> list[Any]:  # noqa: ANN401 - one of the above
    """Apply `keep` to each object; malformed ones are named in `notes`."""
    kept = []
    for item in items:
        try:
            kept.append(keep(item))
        except msgspec.ValidationError as error:
            notes.append(f"{(item.get('metadata') or {}).get('name')} is left out: {error}")
    return kept
