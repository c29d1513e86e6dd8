"""Taints of nodes and what tolerates them, as the scheduler decides."""

from __future__ import annotations

import re

import msgspec

_WHOLE_NUMBER = re.compile("[+-]?[0-9]{1,18}")


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
        """Whether it tolerates the taint, as the scheduler decides. Numbers are compared from Kubernetes 1.35 on."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        match self.operator or "Equal":
            case "Equal":
                return (self.value or "") == (taint.value or "")
            case "Exists":
                return True
            case "Gt":
                return is_greater(taint.value, self.value)
            case "Lt":
                return is_greater(self.value, taint.value)
        return False


def is_greater(one: str | None, other: str | None) -> bool:
    """Whether both are whole numbers as selectors and taints write them, and the first is the greater."""
    if one is None or other is None or not (_WHOLE_NUMBER.fullmatch(one) and _WHOLE_NUMBER.fullmatch(other)):
        return False
    return int(one) > int(other)


UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What tolerates it tolerates a cordoned node."""
