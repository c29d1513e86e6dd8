"""The agent's events, by reason."""

from __future__ import annotations

from enum import StrEnum


class AgentEventReason(StrEnum):
    """What people see in `kubectl describe`; `docs/events.md` says what to do about each."""

    START_REFUSED = "GPUMemoryStartRefused"
    OVER_LIMIT = "GPUMemoryOverLimit"
    CARD_UNHEALTHY = "GPUMemoryCardUnhealthy"
    ON_UNHEALTHY_CARD = "GPUMemoryOnUnhealthyCard"
    CARD_RECOVERED = "GPUMemoryCardRecovered"
    CARD_GONE = "GPUMemoryCardGone"
    NOT_OFFERED = "GPUMemoryNotOffered"
    UNGUARDED_START = "GPUMemoryUnguardedStart"
    POD_LINGERS = "GPUMemoryPodLingers"
    INJECTION = "GPUMemoryInjection"
