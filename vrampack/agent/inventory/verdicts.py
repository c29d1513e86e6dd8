"""Why a card is kept from new pods for longer than a passing fault, and what shows that it was repaired. Pure.

A verdict lasts: it is stored on the Node (`vrampack.dev/cards`), and no restart of agent, kubelet or node ends it. What does:

| cause | ends when |
|---|---|
| `recovery-action` | NVML says that no recovery action is needed |
| `remap-pending`, `pages-pending` | NVML says that none is pending |
| `ecc` | NVML counts no uncorrected error since the driver was loaded |
| `xid-N` where NVML's recovery action follows that error | NVML says that no recovery action is needed |
| `xid-N` to be ended by a reset or a reboot | the node was booted since, or NVML asked for an action and no longer does |
| `remap-failed`, `xid-N` for a person | never by itself |

and always when an operator says so (`vrampack card heal`). A value that NVML does not support, or does not answer, counts as
unknown: it makes no card unhealthy and heals none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from vrampack.agent.inventory.xid_actions import XidAction, XidAdvice
from vrampack.agent.nvml.driver import GpuCondition
from vrampack.cards.node import CardAction, CardVerdict

ACTION_TEXTS: dict[CardAction, str] = {
    "drain": "drain the card",
    "drain_and_reset": "drain the card and reset the GPU",
    "reset": "reset the GPU",
    "reboot": "reboot the node",
    "human": "have a person look at it",
}
GRAVITY: tuple[CardAction, ...] = ("drain", "drain_and_reset", "reset", "reboot", "human")
"""Lightest first. A graver verdict replaces a lighter one."""

RECOVERY_ACTION = "recovery-action"
REMAP_PENDING = "remap-pending"
REMAP_FAILED = "remap-failed"
PAGES_PENDING = "pages-pending"
ECC = "ecc"

_RECOVERY_ACTIONS: dict[int, CardAction] = {
    1: "reset",
    2: "reboot",
    3: "drain",  # of peer-to-peer traffic: NVLink's
    4: "drain_and_reset",
    5: "human",  # the IMEX domain is to be recovered
    6: "reset",  # of the bus
    7: "reboot",  # of the system
}
"""By NVML_GPU_RECOVERY_ACTION_*; 0 is none. An action newer than this table needs a person."""
_VERDICT_ACTIONS: dict[XidAction, CardAction] = {
    XidAction.RESET: "reset",
    XidAction.REBOOT: "reboot",
    XidAction.HUMAN: "human",
}


@dataclass(frozen=True, slots=True)
class CardFault:
    """Something that NVML reports about a GPU now and that keeps pods off it."""

    cause: str
    action: CardAction
    text: str

    @property
    def reason(self) -> str:
        return f"{self.text}: {ACTION_TEXTS[self.action]}"


def list_faults(condition: GpuCondition) -> tuple[CardFault, ...]:
    """The faults that NVML reports, the gravest first."""
    found = []
    if condition.is_remap_failed:
        found.append(CardFault(REMAP_FAILED, "human", "a row of its memory could not be remapped"))
    if condition.recovery_action:
        action = _RECOVERY_ACTIONS.get(condition.recovery_action, "human")
        found.append(CardFault(RECOVERY_ACTION, action, f"NVML asks for recovery action {condition.recovery_action}"))
    if condition.is_remap_pending:
        found.append(CardFault(REMAP_PENDING, "drain_and_reset", "a row of its memory is waiting to be remapped"))
    if condition.is_retirement_pending:
        found.append(CardFault(PAGES_PENDING, "drain_and_reset", "pages of its memory are waiting to be retired"))
    if condition.uncorrected_errors and condition.recovery_action is None and condition.is_remap_pending is None:
        # Newer GPUs contain such an error, and the two values above say what repair it needs.
        found.append(CardFault(ECC, "reset", f"{condition.uncorrected_errors} uncorrected ECC errors"))
    return tuple(sorted(found, key=lambda fault: -GRAVITY.index(fault.action)))


def judge_xid(
    number: int, advice: XidAdvice, condition: GpuCondition, driver_version: str, *, since: str, boot: str
) -> CardVerdict | None:
    """The verdict for that error; None when the catalogue asks for no lasting one."""
    action = _VERDICT_ACTIONS.get(advice.action)
    if action is None:
        return None
    is_linked = advice.driver is not None and _read_branch(driver_version) >= advice.driver
    has_word = is_linked and condition.recovery_action is not None
    return CardVerdict(f"xid-{number}", action, since=since, boot=boot, is_nvml_asked=has_word)


def is_repaired(verdict: CardVerdict, condition: GpuCondition, boot: str) -> bool:
    """Whether NVML and the node show evidence of a repair. An unknown value is no evidence."""
    match verdict.cause:
        case "remap-pending":
            return condition.is_remap_pending is False
        case "pages-pending":
            return condition.is_retirement_pending is False
        case "ecc":
            return condition.uncorrected_errors == 0
    if verdict.is_nvml_asked or verdict.cause == RECOVERY_ACTION:
        return condition.recovery_action == 0
    was_booted = bool(boot and verdict.boot) and boot != verdict.boot
    return was_booted and verdict.action in ("reset", "reboot")


def merge_verdicts(old: CardVerdict | None, new: CardVerdict) -> CardVerdict:
    """The graver verdict; of equals the older one, so that people read the first cause."""
    if old is None or GRAVITY.index(new.action) > GRAVITY.index(old.action):
        return new
    if (
        new.cause == RECOVERY_ACTION
        and old.cause.startswith("xid-")
        and not old.is_nvml_asked
        and old.action != "human"
    ):
        return replace(old, is_nvml_asked=True)  # when NVML then says "none", that is evidence
    return old


def drop_waived(faults: Collection[CardFault], waived: Collection[str]) -> tuple[CardFault, ...]:
    """The faults without those that an operator waived."""
    return tuple(fault for fault in faults if fault.cause not in waived)


def _read_branch(driver_version: str) -> int:
    branch = driver_version.partition(".")[0]
    return int(branch) if branch.isdecimal() else 0
