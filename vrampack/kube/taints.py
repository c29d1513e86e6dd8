"""Taints of nodes and what tolerates them, as the scheduler decides."""

from __future__ import annotations

import msgspec


class Taint(msgspec.Struct, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str = ""

    @property
    def keeps_away(self) -> bool:
        """Whether pods that do not tolerate it are not placed there."""
        return self.effect in ("NoSchedule", "NoExecute")

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether it tolerates the taint, as the scheduler decides; an unknown operator counts as tolerating."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return (self.operator or "Equal") != "Equal" or (self.value or "") == (taint.value or "")


UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What tolerates it tolerates a cordoned node."""
