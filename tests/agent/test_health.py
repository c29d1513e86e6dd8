"""What makes a card unhealthy, and what makes it well again."""

from __future__ import annotations

import pytest

from vrampack.agent.inventory.health import CardHealth, XidRules

RULES = {
    # the application's own: a kernel that faults (13, 31), a process that ends (45) ..
    "application errors do not": (XidRules(), (13, 31, 43, 45, 68, 109), False),
    # ECC twice (48), fallen off the bus (79), GSP (119), and a number that nobody knows yet
    "all others do": (XidRules(), (48, 62, 74, 79, 94, 119, 7777), True),
    "the operator may ignore more": (XidRules(ignored=frozenset({79})), (79, 13), False),
    "and less": (XidRules(fatal=frozenset({13})), (13, 79), True),
    "who says both means fatal": (XidRules(ignored=frozenset({79}), fatal=frozenset({79})), (79,), True),
}


@pytest.mark.parametrize(("rules", "numbers", "want"), RULES.values(), ids=RULES)
def test_which_xids_matter(rules: XidRules, numbers: tuple[int, ...], want: bool) -> None:  # noqa: FBT001 - a table
    assert {rules.makes_unhealthy(number) for number in numbers} == {want}


def test_an_xid_is_enough() -> None:
    assert CardHealth().mark_unhealthy("XID 79") == CardHealth("XID 79")


def test_one_failed_check_is_not_enough() -> None:
    health = CardHealth()
    for _ in range(2):
        health = health.record_failed_check("Unknown Error", max_failures=3)
        assert health.is_healthy
    assert health.record_failed_check("Unknown Error", max_failures=3).reason == "Unknown Error"


def test_failed_checks_count_in_a_row_only() -> None:
    health = (
        CardHealth()
        .record_failed_check("a", max_failures=2)
        .record_clean_check(required_checks=1)
        .record_failed_check("a", max_failures=2)
    )
    assert health.is_healthy


def test_it_heals_after_clean_checks_in_a_row() -> None:
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


def test_another_xid_starts_the_count_anew() -> None:
    health = (
        CardHealth()
        .mark_unhealthy("XID 48")
        .record_clean_check(required_checks=2)
        .mark_unhealthy("XID 63")
        .record_clean_check(required_checks=2)
    )
    assert not health.is_healthy
    assert health.reason == "XID 48"  # the first is the cause
