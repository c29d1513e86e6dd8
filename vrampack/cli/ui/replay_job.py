"""A replay of the cluster under chosen policies: `vrampack snapshot`, then `vrampack simulate replay --report`.

They run as separate programs, so a simulation of minutes delays no page and can be stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from extender.policy_file import list_presets
from policies.registry import POLICIES

JobState = Literal["none", "running", "done", "failed"]
MAX_MESSAGE = 4000
"""How many characters of a program's stderr are kept."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of the last replay."""

    state: JobState = "none"
    policies: tuple[str, ...] = ()
    step: str = ""
    message: str = ""
    """What the programs wrote to stderr."""
    report: bytes = b""
    """The HTML that `--report` wrote."""


def list_policy_choices() -> dict[str, tuple[str, ...]]:
    """The policies and presets that may be chosen."""
    return {"Policies": tuple(POLICIES), "Presets": tuple(list_presets())}


class ReplayJob:
    """One replay at a time."""

    def __init__(self, access_flags: Sequence[str], config_flags: Sequence[str]) -> None:
        self._access_flags = access_flags
        self._config_flags = config_flags
        self._task: asyncio.Task[None] | None = None
        self.status = JobStatus()

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, policies: Sequence[str], *, keeps_bound: bool) -> bool:
        """Begin, unless another replay runs. Ignores names that cannot be chosen; False if none of them can."""
        chosen = tuple(name for names in list_policy_choices().values() for name in names if name in policies)
        if chosen and not self.is_running:
            self.status = JobStatus("running", chosen, "reading the cluster")
            self._task = asyncio.create_task(self._run(chosen, keeps_bound=keeps_bound))
        return bool(chosen)

    async def close(self) -> None:
        """Stop the programs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, policies: tuple[str, ...], *, keeps_bound: bool) -> None:
        flags = [flag for name in policies for flag in ("--policy", name)]
        with tempfile.TemporaryDirectory(prefix="vrampack-ui-") as folder:
            snapshot, report = Path(folder) / "snapshot.json", Path(folder) / "report.html"
            code, said = await _run_vrampack(
                ["snapshot", "--output", str(snapshot), *self._access_flags, *self._config_flags, *flags]
            )
            if code == 0:
                self.status = JobStatus("running", policies, "placing its pods again")
                keep = ["--keep"] if keeps_bound else []
                code, more = await _run_vrampack(
                    ["simulate", "replay", str(snapshot), *self._config_flags, *flags, *keep, "--report", str(report)]
                )
                said += more
            message = said[:MAX_MESSAGE]
            if code == 0:
                self.status = JobStatus("done", policies, "", message, report.read_bytes())
            else:
                self.status = JobStatus("failed", policies, "", message or f"exit code {code}")


async def _run_vrampack(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code, and what the program wrote to stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "vrampack.cli",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode or 0, said.decode(errors="replace")
