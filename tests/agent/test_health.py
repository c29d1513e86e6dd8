"""What makes a card unhealthy, and what makes it healthy again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vrampack.agent.inventory.health import CardHealth
from vrampack.agent.inventory.verdicts import is_repaired, judge_xid, list_faults
from vrampack.agent.inventory.xid_actions import XID_ADVICE, XidAction, XidAdvice, XidRules
from vrampack.agent.nvml.driver import GpuCondition
from vrampack.cards.node import CardAction, CardVerdict

DOCS = Path(__file__).parents[2] / "docs" / "card-health.md"
CHECK, RESET, HUMAN = XidAction.CHECK, XidAction.RESET, XidAction.HUMAN

RULES = {
    # a kernel that faults (13, 31), a process that ends (45), an error that was contained in one program (94)
    "of a program": (XidRules(), (13, 31, 45, 63, 94), {XidAction.NONE, XidAction.RESTART_APP}),
    # ECC (48, 95), a row that cannot be remapped (64), NVLink (74), GSP (119, 120), a context switch that hangs (109)
    "of the card": (XidRules(), (48, 64, 74, 95, 109, 119, 120, 140, 143), {RESET}),
    "fallen off the bus": (XidRules(), (79,), {XidAction.REBOOT}),
    "a number that the catalogue does not know": (XidRules(), (171, 7777), {CHECK}),
    "the operator may ignore more": (XidRules(ignored=frozenset({79})), (79,), {XidAction.NONE}),
    "and less": (XidRules(fatal=frozenset({13, 63})), (13, 63), {CHECK}),
    "fatal makes nothing lighter": (XidRules(fatal=frozenset({48})), (48,), {RESET}),
    "who says both means fatal": (XidRules(frozenset({79}), frozenset({79})), (79,), {XidAction.REBOOT}),
    "the operator's own action": (XidRules(actions={HUMAN: frozenset({94})}), (94,), {HUMAN}),
    "of two the graver": (XidRules(actions={RESET: frozenset({94}), HUMAN: frozenset({94})}), (94,), {HUMAN}),
}


@pytest.mark.parametrize(("rules", "numbers", "want"), RULES.values(), ids=RULES)
def test_xids_map_to_actions(rules: XidRules, numbers: tuple[int, ...], want: set[XidAction]) -> None:
    assert {rules.find_advice(number).action for number in numbers} == want


def test_the_documented_catalogue_is_the_one_in_force() -> None:
    """Every line of the table in `docs/card-health.md`: number, action, driver branch."""
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| `(\w+)` \| (\d*) ?\|", DOCS.read_text(), re.MULTILINE)
    documented = {int(number): XidAdvice(XidAction(action), int(d) if d else None) for number, action, d in rows}
    assert documented == XID_ADVICE


SILENT = GpuCondition()
GOOD = GpuCondition(0, is_remap_pending=False, is_remap_failed=False, is_retirement_pending=False, uncorrected_errors=0)
SINCE = "2026-11-23T10:00:00Z"


def a_verdict(cause: str, action: CardAction = "reset", *, is_nvml_asked: bool = False) -> CardVerdict:
    return CardVerdict(cause, action, SINCE, boot="boot-1", is_nvml_asked=is_nvml_asked)


FAULTS: dict[str, tuple[GpuCondition, list[tuple[str, str]]]] = {
    "nothing is said": (SILENT, []),
    "all is well": (GOOD, []),
    "a reset": (GpuCondition(recovery_action=1), [("recovery-action", "reset")]),
    "a reboot": (GpuCondition(recovery_action=2), [("recovery-action", "reboot")]),
    "peer-to-peer traffic": (GpuCondition(recovery_action=3), [("recovery-action", "drain")]),
    "drain and reset": (GpuCondition(recovery_action=4), [("recovery-action", "drain_and_reset")]),
    "an action of a later driver": (GpuCondition(recovery_action=99), [("recovery-action", "human")]),
    "a remap that waits": (GpuCondition(is_remap_pending=True), [("remap-pending", "drain_and_reset")]),
    "the gravest first": (
        GpuCondition(1, is_remap_pending=True, is_remap_failed=True),
        [("remap-failed", "human"), ("recovery-action", "reset"), ("remap-pending", "drain_and_reset")],
    ),
    "a page that waits": (GpuCondition(is_retirement_pending=True), [("pages-pending", "drain_and_reset")]),
    "ECC errors where nothing else speaks": (GpuCondition(uncorrected_errors=2), [("ecc", "reset")]),
    # A100 and later contain them and say what it takes by other calls.
    "ECC errors where NVML knows the action": (GpuCondition(0, uncorrected_errors=2), []),
    "ECC errors where rows are remapped": (GpuCondition(is_remap_pending=False, uncorrected_errors=2), []),
}


@pytest.mark.parametrize(("condition", "want"), FAULTS.values(), ids=FAULTS)
def test_nvml_condition_maps_to_faults(condition: GpuCondition, want: list[tuple[str, str]]) -> None:
    assert [(fault.cause, fault.action) for fault in list_faults(condition)] == want


REPAIRS = {
    "the remap is done": (a_verdict("remap-pending"), GpuCondition(is_remap_pending=False), "boot-1", True),
    "of the remap nothing is said": (a_verdict("remap-pending"), GpuCondition(0), "boot-2", False),
    "the pages are retired": (a_verdict("pages-pending"), GpuCondition(is_retirement_pending=False), "boot-1", True),
    "the counter is back at 0": (a_verdict("ecc"), GpuCondition(uncorrected_errors=0), "boot-1", True),
    "no counter": (a_verdict("ecc"), SILENT, "boot-2", False),
    "NVML asks for nothing more": (a_verdict("recovery-action"), GOOD, "boot-1", True),
    "NVML asks for nothing more of a person": (a_verdict("recovery-action", "human"), GOOD, "boot-1", True),
    "NVML does not say": (a_verdict("recovery-action"), SILENT, "boot-2", False),
    "NVML was never asked about the XID": (a_verdict("xid-119"), GOOD, "boot-1", False),
    "NVML follows the XID": (a_verdict("xid-48", is_nvml_asked=True), GOOD, "boot-1", True),
    "the node was booted": (a_verdict("xid-119"), SILENT, "boot-2", True),
    "the boot is not known": (a_verdict("xid-119"), SILENT, "", False),
    "a boot where NVML was asked, and is silent": (a_verdict("xid-48", is_nvml_asked=True), SILENT, "boot-2", False),
    "a person": (a_verdict("xid-54", "human"), GOOD, "boot-2", False),
    "a failed remap": (a_verdict("remap-failed", "human"), GOOD, "boot-2", False),
}


@pytest.mark.parametrize(("verdict", "condition", "boot", "want"), REPAIRS.values(), ids=REPAIRS)
def test_only_matching_evidence_counts_as_a_repair(
    verdict: CardVerdict,
    condition: GpuCondition,
    boot: str,
    want: bool,  # noqa: FBT001 - a parameter
) -> None:
    assert is_repaired(verdict, condition, boot) is want


LINKS = {
    "from that branch on": ("570.10", GOOD, True),
    "an older driver": ("560.10", GOOD, False),
    "a GPU for which NVML has no action": ("570.10", SILENT, False),
}


@pytest.mark.parametrize(("driver", "condition", "want"), LINKS.values(), ids=LINKS)
def test_xid_is_left_to_nvml_where_nvml_reports_its_action(driver: str, condition: GpuCondition, want: bool) -> None:  # noqa: FBT001 - a table
    """Xid 154 is linked with 48 since 565."""
    verdict = judge_xid(48, XID_ADVICE[48], condition, driver, since=SINCE, boot="boot-1")
    assert verdict == a_verdict("xid-48", is_nvml_asked=want)


def test_most_severe_verdict_is_kept() -> None:
    health = CardHealth().mark_out("XID 119", a_verdict("xid-119")).mark_out("row", a_verdict("remap-failed", "human"))
    assert (health.reason, health.mark_out("XID 48", a_verdict("xid-48"))) == ("row", health)


def test_later_nvml_finding_lets_nvml_decide_about_the_xid() -> None:
    health = CardHealth().mark_out("XID 119", a_verdict("xid-119")).mark_out("NVML", a_verdict("recovery-action"))
    assert (health.reason, health.verdict) == ("XID 119", a_verdict("xid-119", is_nvml_asked=True))


def test_a_verdict_outlives_clean_checks_without_evidence() -> None:
    health = CardHealth().mark_out("XID 119", a_verdict("xid-119"))
    for is_repaired_now in (True, False, True, True):
        health = health.record_clean_check(required_checks=3, is_repaired=is_repaired_now)
        assert not health.is_healthy
    assert health.record_clean_check(required_checks=3, is_repaired=True) == CardHealth()


def test_one_xid_makes_a_card_unhealthy() -> None:
    assert CardHealth().mark_unhealthy("XID 79") == CardHealth("XID 79")


def test_card_is_unhealthy_only_after_several_failed_checks() -> None:
    health = CardHealth()
    for _ in range(2):
        health = health.record_failed_check("Unknown Error", max_failures=3)
        assert health.is_healthy
    assert health.record_failed_check("Unknown Error", max_failures=3).reason == "Unknown Error"


def test_only_consecutive_failed_checks_count() -> None:
    health = (
        CardHealth()
        .record_failed_check("a", max_failures=2)
        .record_clean_check(required_checks=1)
        .record_failed_check("a", max_failures=2)
    )
    assert health.is_healthy


def test_a_card_heals_after_clean_checks_in_a_row() -> None:
    """Two, a failed one, and two again are not three."""
    health = CardHealth().mark_unhealthy("XID 48")
    for is_clean in (True, True, False, True, True):
        health = (
            health.record_clean_check(required_checks=3)
            if is_clean
            else health.record_failed_check("hung", max_failures=1)
        )
        assert health.reason == "XID 48"
    assert health.record_clean_check(required_checks=3) == CardHealth()


def test_another_xid_restarts_the_count() -> None:
    health = (
        CardHealth()
        .mark_unhealthy("XID 48")
        .record_clean_check(required_checks=2)
        .mark_unhealthy("XID 63")
        .record_clean_check(required_checks=2)
    )
    assert not health.is_healthy
    assert health.reason == "XID 48"  # the first is the cause
