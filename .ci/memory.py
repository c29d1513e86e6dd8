"""`.ci/green`: a line for each suite that passed, with what it passed for. Like a lock file: `.ci/run` writes it, people commit it."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from inputs import compute_digest
from machine import Machine
from suites import Suite, read_budgets

FILE = Path(".ci/green")
MAX_AGE_DAYS = 14
HEADER = """\
# What each suite last passed for. `.ci/run` writes this; commit it with the change. docs/testing.md says when a line counts.
# """


@dataclass(frozen=True, slots=True)
class GreenRun:
    """One run of a suite in which all tests passed: a line of the file, these fields with spaces between."""

    suite: str
    digest: str
    """Of the files it read and the variables it was started with."""
    date: str
    seconds: int
    """On the wall, without first builds."""
    speed: float
    """Of a core, as a share of the reference."""
    cores: int
    kernel: str
    system: str
    cpu_flags: str
    commit: str
    """With `+` where changes to it were not committed."""

    @classmethod
    def parse(cls, line: str) -> GreenRun | None:
        """None for a line that says something else."""
        words = line.split()
        if line.startswith("#") or len(words) != len(fields(cls)):
            return None
        suite, digest, date, seconds, speed, cores, *rest = words
        try:
            dt.date.fromisoformat(date)
            return cls(suite, digest, date, int(seconds), float(speed), int(cores), *rest)
        except ValueError:
            return None

    def __str__(self) -> str:
        return " ".join(str(getattr(self, each.name)) for each in fields(self))


class Memory:
    """What the file says, and what today's runs add."""

    def __init__(self, root: Path, machine: Machine, suites: Sequence[Suite]) -> None:
        self._root = root
        self._machine = machine
        self._digests = {suite.target: compute_digest(root, suite) for suite in suites}
        self._commit = _describe_commit(root)
        text = (root / FILE).read_text() if (root / FILE).exists() else ""
        self._runs = {run.suite: run for run in map(GreenRun.parse, text.splitlines()) if run}

    def find_run(self, suite: Suite) -> GreenRun | None:
        return self._runs.get(suite.target)

    def find_reason_to_run(self, suite: Suite) -> str | None:
        """The first thing that is not as it was when the suite passed. None for a suite that is remembered."""
        green, machine = self.find_run(suite), self._machine
        if green is None:
            return "no green run is remembered"
        if not self.has_passed_for_files(suite):
            return "its files changed"
        today = dt.datetime.now(dt.UTC).date()
        if not 0 <= (today - dt.date.fromisoformat(green.date)).days <= MAX_AGE_DAYS:
            return f"it last passed on {green.date}"
        now = [machine.kernel, machine.system, machine.cpu_flags if suite.uses_qemu else green.cpu_flags]
        then = [green.kernel, green.system, green.cpu_flags]
        changes = [f"{new} instead of {old}" for new, old in zip(now, then, strict=True) if new != old]
        return changes[0] if changes else None

    def has_passed_for_files(self, suite: Suite) -> bool:
        """Whether its line is for exactly these files, wherever and whenever that was."""
        green = self.find_run(suite)
        return green is not None and green.digest == self._digests[suite.target]

    def estimate_seconds(self, suite: Suite, speed: float) -> float:
        """As long as it took when it last passed, else its budget: scaled to this machine and the speed of its cores now."""
        green = self.find_run(suite)
        if green is None:
            return read_budgets()[suite.target] / speed
        return green.seconds * green.speed / speed * max(1.0, green.cores / self._machine.cores)

    def forget(self, suite: Suite) -> GreenRun | None:
        """Before a run, so that one that is ended counts as red. Returns what was remembered."""
        run = self._runs.pop(suite.target, None)
        self._write()
        return run

    def remember(self, run: GreenRun) -> None:
        self._runs[run.suite] = run
        self._write()

    def describe_run(self, suite: Suite, *, digest: str, seconds: int, speed: float) -> GreenRun:
        """One that has passed now and here."""
        machine = self._machine
        return GreenRun(
            suite=suite.target,
            digest=digest,
            date=str(dt.datetime.now(dt.UTC).date()),
            seconds=seconds,
            speed=speed,
            cores=machine.cores,
            kernel=machine.kernel,
            system=machine.system,
            cpu_flags=machine.cpu_flags,
            commit=self._commit,
        )

    def _write(self) -> None:
        columns = " ".join(each.name for each in fields(GreenRun))
        lines = (HEADER + columns, *(str(self._runs[target]) for target in sorted(self._runs)))
        partial = (self._root / FILE).with_suffix(".partial")
        partial.write_text("".join(f"{line}\n" for line in lines))
        partial.rename(self._root / FILE)


def _describe_commit(root: Path) -> str:
    commit = _git(root, "rev-parse", "--short=12", "HEAD").strip()
    return f"{commit}+" if _git(root, "status", "--porcelain", "--", ".", f":(exclude){FILE}") else commit


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout
