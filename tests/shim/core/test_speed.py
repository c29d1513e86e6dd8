"""What a call costs that does not concern the core (`-s` shows it)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MOST_NANOSECONDS = 200
"""Of a passed control; measured below 15 on an idle core. Not a benchmark: it finds a lock or a walk on that path."""


def test_passing_a_control_call_through_costs_nanoseconds(stopwatch: Path) -> None:
    line = subprocess.run([stopwatch], capture_output=True, text=True, check=True, timeout=100).stdout
    sys.stdout.write(f"\nnanoseconds: {line}")
    words = line.split()
    assert float(words[1]) < MOST_NANOSECONDS
    assert float(words[3]) < MOST_NANOSECONDS
