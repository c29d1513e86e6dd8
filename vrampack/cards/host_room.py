"""CPU and main memory besides the cards: what a pod asks of its host, and what a host has left.

kube-scheduler checks both. Here they only help to rank nodes: a card whose host has no CPU left is useless.
"""

from __future__ import annotations

from typing import NamedTuple


class HostResources(NamedTuple):
    """An amount of CPU and of memory."""

    cpu_milli: int
    """Thousandths of a CPU."""
    memory_mib: int
