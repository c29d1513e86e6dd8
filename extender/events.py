"""The extender's events, by reason. `vrampack/kube/events.py` writes them and limits their number."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from extender.metrics import ExtenderMetrics
from vrampack.kube import events
from vrampack.kube.client import Api


class EventReason(StrEnum):
    """What people see in `kubectl describe`; `docs/events.md` says what to do about each."""

    ASSIGNED = "GPUMemoryAssigned"
    BIND_FAILED = "GPUMemoryBindFailed"
    UNASSIGNED_POD = "GPUMemoryUnassignedPod"
    ANNOTATION_REJECTED = "GPUMemoryAnnotationRejected"
    RECORDS_DISAGREE = "GPUMemoryRecordsDisagree"
    OVERCOMMITTED = "GPUMemoryOvercommitDetected"
    UNIT_MISMATCH = "GPUMemoryUnitMismatch"
    REQUEST_NOT_VALID = "GPUMemoryRequestNotValid"
    GROUP_DOES_NOT_FIT = "GPUMemoryGroupDoesNotFit"
    NOT_PLACED = "GPUMemoryNotPlaced"
    EVICTED = "GPUMemoryEvicted"
    NOT_EVICTED = "GPUMemoryNotEvicted"
    PREEMPTION_PLANNED = "GPUMemoryPreemptionPlanned"
    PREEMPTED = "GPUMemoryPreempted"
    NOT_PREEMPTING = "GPUMemoryNotPreempting"
    CONFIGURATION_APPLIED = "GPUMemoryConfigurationApplied"
    CONFIGURATION_REJECTED = "GPUMemoryConfigurationRejected"
    SECOND_EXTENDER = "GPUMemorySecondExtender"
    WHOLE_CARD_UNPAID = "GPUMemoryWholeCardUnpaid"
    WHOLE_CARDS_AS_REQUESTED = "GPUMemoryWholeCardsAsRequested"
    KEPT_FROM_AUTOSCALERS = "GPUMemoryKeptFromAutoscalers"
    NOT_KEPT_FROM_AUTOSCALERS = "GPUMemoryNotKeptFromAutoscalers"
    NODE_ASKED_FOR = "GPUMemoryNodeAskedFor"


class ExtenderEventRecorder(events.EventRecorder):
    """Queues events and writes them in the background; what it leaves out is counted."""

    def __init__(
        self, api: Api, metrics: ExtenderMetrics, *, clock: Callable[[], float], now: Callable[[], float]
    ) -> None:
        def dropped(cause: str) -> None:
            metrics.events_dropped.labels(cause).inc()

        super().__init__(api, component="vrampack-extender", on_dropped=dropped, clock=clock, now=now)
