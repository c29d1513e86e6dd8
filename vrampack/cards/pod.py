"""A pod as the ledger sees it: its identity, its node, its request and what its record says."""

from __future__ import annotations

from dataclasses import dataclass

from vrampack.cards.pod_group import GroupKey
from vrampack.cards.records import Record, UnreadableRecord
from vrampack.cards.request import PodRequest
from vrampack.cards.resource_version import is_later_version
from vrampack.cards.well_known import PLACEHOLDER_SCHEDULER


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of the API server, decoded. `node_name` is empty while it is not bound."""

    uid: str
    namespace: str
    name: str
    node_name: str = ""
    request: PodRequest | None = None
    record: Record | UnreadableRecord | None = None
    is_terminating: bool = False
    """Whether it has a deletionTimestamp; it holds its memory until it is deleted."""
    is_finished: bool = False
    """Whether it is Succeeded or Failed, and no longer holds anything."""
    priority: int = 0
    nominated_node: str = ""
    """The node where the scheduler evicted others for it; empty for none."""
    preemption_node: str = ""
    """The node where the extender evicts others for it, or has done so."""
    created_at: str = ""
    """In the API server's form (RFC 3339, UTC, whole seconds): such texts sort by time."""
    resource_version: str = ""
    scheduler_name: str = ""
    rule_labels: tuple[tuple[str, str], ...] = ()
    """Its labels that the cluster's rules name."""
    namespace_labels: tuple[tuple[str, str], ...] = ()
    """Its namespace's labels that rules or profiles name."""
    may_bind_late: bool = False
    """Whether a scheduler may wait long before it binds it: for a volume, a resource claim or the rest of its group."""
    group: GroupKey | None = None
    """The group whose pods its scheduler starts together; None without one."""
    failed_attempt: str = ""
    """Why no scheduler could place it, by its PodScheduled condition, as a digest; empty if none has said so."""
    told_reason: str = ""
    """For which reason it was refused, as the extender has told its owner; empty if it has not."""
    is_gated: bool = False
    """Whether it has schedulingGates: no scheduler tries it, and the API server refuses to bind it."""

    @property
    def node_to_keep(self) -> str:
        """The node on which it keeps cards until it is bound; empty for none."""
        return self.nominated_node or self.preemption_node

    @property
    def is_placeholder(self) -> bool:
        """Whether it is there for autoscalers alone, and must never get a node."""
        return self.scheduler_name == PLACEHOLDER_SCHEDULER and not self.node_name

    @property
    def is_waiting(self) -> bool:
        """Whether it asks for memory, has no node yet, and may be tried by a scheduler."""
        return self.request is not None and not (
            self.node_name or self.is_terminating or self.is_finished or self.is_gated
        )

    @property
    def can_hold_memory(self) -> bool:
        """Whether it can hold card memory at all."""
        return self.request is not None or self.record is not None

    @property
    def holds_memory(self) -> bool:
        """Whether it is bound, not finished, and has a request or record. A terminating pod still holds its memory."""
        return bool(self.node_name) and self.can_hold_memory and not self.is_finished

    def is_older_than(self, known: Pod) -> bool:
        """Whether `known` was written later, or shows a state that never ends: bound, terminating, finished."""
        return (
            is_later_version(known.resource_version, than=self.resource_version)
            or (bool(known.node_name) and not self.node_name)
            or (known.is_terminating and not self.is_terminating)
            or (known.is_finished and not self.is_finished)
        )

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
