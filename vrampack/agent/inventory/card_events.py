"""Records what happens to cards, as events of the Node and in metrics."""

from __future__ import annotations

from vrampack.agent.events import AgentEventReason
from vrampack.agent.inventory.discovery import CardChange
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.nvml.driver import Xid
from vrampack.kube.events import EventRecorder

EVENT_REASONS = {
    "unhealthy": AgentEventReason.CARD_UNHEALTHY,
    "recovered": AgentEventReason.CARD_RECOVERED,
    "vanished": AgentEventReason.CARD_GONE,
    "dropped": AgentEventReason.CARD_GONE,
}


class CardEventRecorder:
    """Of one node."""

    def __init__(self, node: str, events: EventRecorder, metrics: AgentMetrics) -> None:
        self._node = node
        self._events = events
        self._metrics = metrics

    def record_change(self, change: CardChange) -> None:
        reason = EVENT_REASONS.get(change.kind)
        if reason is not None:
            text = f"card {change.gpu.uuid} {change.kind}: {change.text}"
            self._events.record_node_event(self._node, reason, text, card=change.gpu.index)

    def count_xid(self, xid: Xid) -> None:
        self._metrics.xid_errors.labels(xid.uuid or "", str(xid.number)).inc()
