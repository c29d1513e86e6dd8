"""What NVIDIA recommends after each error that its driver reports: the Xid catalogue as a table. Pure.

The source is NVIDIA's "Analyzing Xid Errors with the Xid Catalog", column "Immediate Action"; `docs/card-health.md` has the
same table with the names, and a test compares the two. A number that is not here has no immediate action in the
catalogue, or is newer than it, and gets `CHECK`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class XidAction(StrEnum):
    """What to do with a card after an error, lightest first."""

    NONE = "none"
    """Nothing."""
    RESTART_APP = "restart_app"
    """Restart the program that caused it. The card stays in use."""
    CHECK = "check"
    """No recommendation: keep new pods off the card until its checks are clean again."""
    RESET = "reset"
    """Reset the GPU."""
    REBOOT = "reboot"
    """Reboot the node."""
    HUMAN = "human"
    """Keep new pods off the card until a person says otherwise."""


@dataclass(frozen=True, slots=True)
class XidAdvice:
    """The catalogue's entry for one number."""

    action: XidAction
    driver: int | None = None
    """From this driver branch on, NVML's recovery action follows the error ("Xid 154 linkage"); None: it never does."""


_IGNORED = (14, 37, 38, 43, 44, 45, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 154, 157, 160, 161)
_POWER_SMOOTHING = (162, 163, 164, 165)
_CONFIDENTIAL_COMPUTING = (166, 170)
_RESTART_APP = (
    *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 94),
    *range(96, 106),
    *range(126, 136),
    139,
)
_RESET_LINKED_565 = (48, 62, 64, 74, 95, 110, 120, 136, *range(144, 151), 155, 156)

XID_ADVICE: Mapping[int, XidAdvice] = {
    **dict.fromkeys((*_IGNORED, *_POWER_SMOOTHING, *_CONFIDENTIAL_COMPUTING), XidAdvice(XidAction.NONE)),
    **dict.fromkeys(_RESTART_APP, XidAdvice(XidAction.RESTART_APP)),
    **dict.fromkeys((46, 119, 140), XidAdvice(XidAction.RESET)),
    **dict.fromkeys(_RESET_LINKED_565, XidAdvice(XidAction.RESET, driver=565)),
    **dict.fromkeys((109, 158), XidAdvice(XidAction.RESET, driver=570)),
    143: XidAdvice(XidAction.RESET, driver=575),
    79: XidAdvice(XidAction.REBOOT, driver=565),
    151: XidAdvice(XidAction.REBOOT),
    54: XidAdvice(XidAction.HUMAN),
    78: XidAdvice(XidAction.HUMAN),
}

_UNKNOWN = XidAdvice(XidAction.CHECK)


@dataclass(frozen=True, slots=True)
class XidRules:
    """The catalogue, with the operator's settings over it. Of a number that they name twice the graver action counts."""

    ignored: frozenset[int] = frozenset()
    fatal: frozenset[int] = frozenset()
    """These make the card unhealthy whatever the catalogue says, until its checks are clean, or longer if it says so."""
    actions: Mapping[XidAction, frozenset[int]] = field(default_factory=dict)
    """Numbers by their action: `RESET`, `REBOOT` or `HUMAN`."""

    def find_advice(self, number: int) -> XidAdvice:
        for action in (XidAction.HUMAN, XidAction.REBOOT, XidAction.RESET):
            if number in self.actions.get(action, ()):
                return XidAdvice(action)
        advice = XID_ADVICE.get(number, _UNKNOWN)
        if number in self.fatal:
            return _UNKNOWN if advice.action in (XidAction.NONE, XidAction.RESTART_APP) else advice
        return XidAdvice(XidAction.NONE) if number in self.ignored else advice
