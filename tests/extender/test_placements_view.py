"""The inspect answer shows every place that no bound pod explains, and since when."""

from __future__ import annotations

from dataclasses import replace

from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod


def test_each_kind_of_place_is_shown_with_its_age() -> None:
    desk = SchedulerHarness({"a": [15, 15, 15]})
    reserved = desk.add_pending_pod("reserved")
    desk.ledger.assume(reserved, "a", desk.allocation(reserved, "a", 0))
    desk.ledger.mark_unconfirmed("reserved", "a")
    desk.seconds += 1.0
    held = desk.add_pending_pod("held", 3)
    desk.ledger.hold_place(held, "a", desk.allocation(held, "a", 0), 0.0)
    desk.seconds += 0.5
    assert desk.filter_and_prioritize("promised", 15) == "a"
    desk.seconds += 0.25
    desk.ledger.update_pod(replace(ledger_pod("nominated", units=15), nominated_node="a"))

    assert desk.parts.placements_view.build_json() == {
        "reservations": [
            {
                "uid": "reserved",
                "namespace": "default",
                "name": "reserved",
                "node": "a",
                "cards": [0],
                "ageSeconds": 1.75,
                "unconfirmed": True,
            }
        ],
        "holds": [
            {
                "uid": "held",
                "namespace": "default",
                "name": "held",
                "node": "a",
                "cards": [0],
                "ageSeconds": 0.75,
                "confirmed": False,
            }
        ],
        "promises": [{"uid": "promised", "node": "a", "cards": [1], "ageSeconds": 0.25}],
        "nominations": [{"uid": "nominated", "namespace": "default", "name": "nominated", "node": "a", "cards": [1]}],
    }


def test_an_idle_extender_shows_no_placements() -> None:
    assert SchedulerHarness({"a": [15]}).parts.placements_view.build_json() == {
        "reservations": [],
        "holds": [],
        "promises": [],
        "nominations": [],
    }
