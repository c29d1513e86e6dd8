"""CPU and main memory beside the cards: what a pod asks of its host, and what a host has left.

kube-scheduler checks both. Here they only help to rank nodes: a card whose host has no CPU left is worth nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class HostResources(NamedTuple):
    """An amount of both."""

    cpu_milli: int
    """Thousandths of a CPU."""
    memory_mib: int
