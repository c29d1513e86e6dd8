"""Finds warnings, oopses and other complaints in a kernel's log."""

from __future__ import annotations

import re

WORSE = re.compile(
    r"WARNING:|BUG:|Oops:|UBSAN:|Call Trace:|general protection|unreferenced object|INFO: possible|INFO: trying|"
    r"INFO: task .* blocked|rcu: .*stall|soft lockup|hard LOCKUP|DEBUG_LOCKS_WARN|suspicious RCU|corruption|refcount_t|"
    r"segfault|scheduling while atomic|ODEBUG:|Kernel panic|Unable to handle|double fault|kmemleak: \d+ new"
)
BEFORE, AFTER = 2, 25
"""Lines of context; the trace follows the message."""


def find_kernel_complaints(log: str) -> str:
    """The first complaint with its context; empty if there is none."""
    lines = log.splitlines()
    first = next((number for number, line in enumerate(lines) if WORSE.search(line)), None)
    return "" if first is None else "\n".join(lines[max(0, first - BEFORE) : first + AFTER])
