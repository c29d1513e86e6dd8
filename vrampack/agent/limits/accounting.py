"""Who holds what, in the form shared by all back ends that count by container and process; for metrics and `/limits`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """One container on one card."""

    used_bytes: int
    peak_bytes: int
    """The peak since the counter started."""
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
    """What is held now. Containers have their names in the pod; the name is empty if figures are for the whole pod."""

    def list_usage_totals(self) -> Mapping[tuple[str, str, str], UsageTotals]:
        """Totals by pod uid, container name and card."""

    def count_processes(self) -> Mapping[tuple[str, str], int]:
        """The number of counted processes by pod uid and container name."""

    @property
    def process_count(self) -> int:
        """The number of all counted processes."""

    def list_processes(self) -> tuple[ProcessUsage, ...]:
        """Who holds what, process by process."""
