"""Malformed calls: random sizes, bytes and numbers, null and wild pointers, lists cut short and counts without end."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

CALLS = 100_000


def test_malformed_calls_neither_crash_nor_charge_wrongly(fuzzer: Path) -> None:
    seed = Random().randrange(1 << 31)
    done = subprocess.run([fuzzer, str(CALLS), str(seed)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-4000:]}"
    words = done.stdout.split()
    said = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert said["calls"] == CALLS
    assert said["used"] == 0
    # Enough of them succeeded for the accounts to be able to go wrong, and enough did not.
    assert said["made"] > CALLS / 200
    assert said["answered"] > CALLS / 20
    assert said["unreadable"] > CALLS / 50
