"""Threads that make, free, duplicate and close at once on one core, under the thread sanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

ROUNDS = 40_000
"""For each of four threads: some 40,000 allocations, a fifth as many refusals."""


@pytest.mark.parametrize("manner", ["careful", "reckless"])
def test_threads_neither_lose_nor_double_a_charge(racer: Path, manner: str) -> None:
    seed = Random().randrange(1 << 31)
    command = [str(racer), manner, "4", str(ROUNDS), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-4000:]}"
    words = done.stdout.split()
    said = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert said["used"] == 0
    assert said["peak"] <= 24 << 20
    # Without refusals the limit was never close, and nothing was shown.
    assert said["made"] > ROUNDS / 2
    assert said["refused"] > ROUNDS / 40
