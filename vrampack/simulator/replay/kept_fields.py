"""The table of what a snapshot keeps of API objects: the fields that placement reads.

The structures are the complete list, as conversion drops everything else: images, arguments, volumes, owners, conditions. A
support bundle keeps fields for another purpose, and lists them with the same means (`cli/support_bundle/kept_objects.py`).
"""

from __future__ import annotations

import msgspec

from vrampack.kube.objects import EnvVar

Quantities = dict[str, str | int | float]
Texts = dict[str, str]


class KeptFields(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fields of an object that stay when it is converted. Empty ones are not written."""


class KeptMetadata(KeptFields, frozen=True):
    name: str
    namespace: str | None = None
    uid: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Texts | None = None
    annotations: Texts | None = None


class KeptTaint(KeptFields, frozen=True):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class KeptNodeSpec(KeptFields, frozen=True):
    unschedulable: bool | None = None
    taints: list[KeptTaint] | None = None


class KeptNodeStatus(KeptFields, frozen=True):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class KeptNode(KeptFields, frozen=True):
    metadata: KeptMetadata
    spec: KeptNodeSpec = KeptNodeSpec()
    status: KeptNodeStatus = KeptNodeStatus()


class KeptResources(KeptFields, frozen=True):
    requests: Quantities | None = None
    limits: Quantities | None = None


class KeptPort(KeptFields, frozen=True):
    host_port: int = 0
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class KeptContainer(KeptFields, frozen=True):
    name: str
    resources: KeptResources | None = None
    restart_policy: str | None = None
    env: list[EnvVar] | None = None
    ports: list[KeptPort] | None = None


class KeptToleration(KeptFields, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class KeptGate(KeptFields, frozen=True):
    name: str


class KeptRequirement(KeptFields, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class KeptSelectorTerm(KeptFields, frozen=True):
    match_expressions: list[KeptRequirement] | None = None
    match_fields: list[KeptRequirement] | None = None


class KeptNodeSelector(KeptFields, frozen=True):
    node_selector_terms: list[KeptSelectorTerm] | None = None


class KeptNodeAffinity(KeptFields, frozen=True):
    required_during_scheduling_ignored_during_execution: KeptNodeSelector | None = None


class KeptAffinity(KeptFields, frozen=True):
    node_affinity: KeptNodeAffinity | None = None


class KeptPodSpec(KeptFields, frozen=True):
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    scheduling_gates: list[KeptGate] | None = None
    node_selector: Texts | None = None
    tolerations: list[KeptToleration] | None = None
    affinity: KeptAffinity | None = None
    overhead: Quantities | None = None
    resources: KeptResources | None = None
    init_containers: list[KeptContainer] | None = None
    containers: list[KeptContainer] | None = None


class KeptPodStatus(KeptFields, frozen=True):
    phase: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None


class KeptPod(KeptFields, frozen=True):
    metadata: KeptMetadata
    spec: KeptPodSpec = KeptPodSpec()
    status: KeptPodStatus = KeptPodStatus()


class KeptNamespace(KeptFields, frozen=True):
    metadata: KeptMetadata
