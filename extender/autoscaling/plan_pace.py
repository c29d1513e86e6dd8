"""How often plans over all nodes are made."""

from __future__ import annotations

PLAN_INTERVAL_SECONDS = 5.0
"""Less than Karpenter waits (15 s) before it removes nodes that it has chosen."""
PLAN_SHARE = 0.05
"""Of one CPU, at most, where plans take long."""


def compute_pause(cpu_seconds: float) -> float:
    """The time until the next plan, after one that took so much of a CPU."""
    return max(PLAN_INTERVAL_SECONDS, cpu_seconds / PLAN_SHARE)
