"""What was read of a watch may be trusted if the reader recently had to wait for more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from vrampack.kube.watch_lag import WatchLag

READ, WAIT, ENDED, LISTED = "read", "wait", "watch ends", "list ends"

CASES: dict[str, tuple[Sequence[tuple[str, float]], bool]] = {
    "no watch is open": ([("", 100.0)], False),
    "a quiet cluster: a wait a second": ([(WAIT, 1.0)] * 60, False),
    "a busy one: a millisecond of waiting in a hundred": ([(READ, 0.099), (WAIT, 0.001)] * 100, False),
    "a wait of more than 3 s": ([(WAIT, 1.0), (WAIT, 3.1)], True),
    "reading for more than 3 s without a wait": ([(WAIT, 1.0), (READ, 3.1)], True),
    "one short wait after that": ([(WAIT, 1.0), (READ, 3.1), (WAIT, 0.05)], True),
    "short waits, a tenth of a second in all": ([(WAIT, 1.0), (READ, 3.1), *[(WAIT, 0.03), (READ, 1.0)] * 4], False),
    "the watch ended on time": ([(WAIT, 1.0), (ENDED, 100.0)], False),
    "the watch ended behind": ([(WAIT, 1.0), (WAIT, 5.0), (ENDED, 2.0)], True),
    "and the next one begins": ([(WAIT, 1.0), (WAIT, 5.0), (ENDED, 2.0), (WAIT, 0.05)], True),
    "and was read": ([(WAIT, 1.0), (WAIT, 5.0), (ENDED, 2.0), (WAIT, 0.2)], False),
    "and was read after a long time": ([(WAIT, 1.0), (WAIT, 5.0), (ENDED, 9.0), (WAIT, 0.2)], False),
    "everything was listed": ([(WAIT, 1.0), (WAIT, 5.0), (ENDED, 9.0), (LISTED, 9.0)], False),
}


@pytest.mark.parametrize(("steps", "is_behind"), CASES.values(), ids=CASES)
def test_lag_is_reported_while_the_reader_is_behind(steps: Sequence[tuple[str, float]], is_behind: bool) -> None:  # noqa: FBT001 - a table
    """Each step has a duration in seconds; the last one is not over yet."""
    seconds = 0.0
    lag = WatchLag("pods", clock=lambda: seconds)
    last = ""
    for what, lasts in steps:
        if last == WAIT:
            lag.note_wait_ended()
        if what == WAIT:
            lag.note_wait_started()
        elif what == ENDED:
            lag.note_watch_ended()
        elif what == LISTED:
            lag.note_list_finished()
        last = what
        seconds += lasts
    assert bool(lag.describe_lag()) is is_behind
