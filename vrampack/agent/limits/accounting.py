"""Who holds what, in a form that all back ends share that count by container and process; metrics and `/limits` read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """One container on one card."""

    used_bytes: int
    peak_bytes: int
    """Since the counter started."""
    refused: int


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """One process on one card, for people."""

    pid: int
    pod_uid: str
    container_id: str
    container: str
    uuid: str
    held_bytes: int
    refused: int


class UsageAccounting(Protocol):
    """What is held now. A container is named as its pod names it; empty where figures are the whole pod's."""

    def list_usage_totals(self) -> Mapping[tuple[str, str, str], UsageTotals]:
        """By pod uid, container name and card."""

    def count_processes(self) -> Mapping[tuple[str, str], int]:
        """Processes that are counted, by pod uid and container name."""

    @property
    def process_count(self) -> int:
        """All processes that are counted."""

    def list_processes(self) -> tuple[ProcessUsage, ...]:
        """Who holds what, process by process."""
