"""Programs that start others, and end with all of them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

OUT_OF_TIME = 124
"""As the program `timeout` ends."""
GRACE_SECONDS = 30


def run_program(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], seconds: float | None = None
) -> int:
    """Its exit code; `OUT_OF_TIME` for one that took longer, and then nothing that it started is left."""
    with subprocess.Popen(
        command, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, process_group=0
    ) as started:
        try:
            return started.wait(seconds)
        except subprocess.TimeoutExpired:
            return OUT_OF_TIME
        finally:
            end_group(started)


def end_group(leader: subprocess.Popen[bytes]) -> None:
    """First ask, then end: a suite that is asked takes back what it did to the machine."""
    if leader.poll() is not None:
        return
    os.killpg(leader.pid, signal.SIGTERM)
    try:
        leader.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()
