"""Programs that start others, and end with all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

OUT_OF_TIME = 124
"""As the program `timeout` ends."""
GRACE_SECONDS = 30
POLL_SECONDS = 0.1


def run_program(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], seconds: float | None = None
) -> int:
    """Its exit code; `OUT_OF_TIME` for one that took longer. Nothing that it started is left."""
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
    """Ask all processes of the group to end, and end those that do not: a suite undoes what it did to the machine."""
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            leader.poll()  # a process that ended is in the group until its parent knows
            os.killpg(leader.pid, 0)
            time.sleep(POLL_SECONDS)
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
