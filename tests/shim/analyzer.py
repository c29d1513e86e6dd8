"""Compilers that look for mistakes: seconds of one processor for each file, so as many at once as there are processors."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TIMEOUT_SECONDS = 300
ANALYZER = ("clang", "--analyze", "-Xanalyzer", "-analyzer-output=text")


def run_analyzer(commands: Iterable[Sequence[str]], *, cwd: Path | None = None) -> list[str]:
    """What they said, of those that failed or were not silent."""

    def run(command: Sequence[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, cwd=cwd)
        return done.stderr or ("" if done.returncode == 0 else f"{command[-1]}: {done.returncode}")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [said for said in pool.map(run, commands) if said]
