"""`.ci/run` behind its first lines: which suites have to run, in which order and in what time, and what they came to.

    programs, packages > check, test, mutations, demo > the other suites, each in a copy of the files it reads > summary
                       > meanwhile, at the lowest priority, what those build once

A suite that passed for the same files, on a machine of the same kind, within a fortnight, is remembered and not run again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import summary
from first_builds import FirstBuilds
from inputs import InputsError, copy_files, digest_of
from machine import Machine
from memory import Memory
from programs import OUT_OF_TIME, run_program
from speed import measure_speed
from suites import FOR_EVERY_CHANGE, RELEASE_NEEDS, RELEASE_SUITES, WITHOUT_REPORT, Suite, list_suites

ROOT = Path.cwd()
REPORTS = ROOT / "build" / "reports"
COPIES = ROOT / "build" / "suites"
LIMIT_MINUTES = 80
"""For a change. What does not fit is not begun: CI that ends a run after 90 minutes would end it without a result."""
END_MINUTES = 87
"""What was begun, and takes longer than the last time, is ended then."""
DEMO_SECONDS = 120


class CiRun:
    """One run, and what it found."""

    def __init__(self, *, is_all: bool, is_release: bool) -> None:
        self._started = time.monotonic()
        self._is_release = is_release
        self._memory = Memory(ROOT, Machine.read())
        self._speed = measure_speed()
        self._suites = list_suites(is_release=is_release)
        self._reasons = {
            suite.target: "all are asked for" if is_all or is_release else self._memory.find_reason_to_run(suite)
            for suite in self._suites
        }
        self._broken: list[str] = []

    def plan(self) -> None:
        """Print which suites run, in this order and why, and which are remembered."""
        announce("what has to run")
        say(*(f"{suite.target}: runs: {self._reasons[suite.target]}" for suite in self._order_suites()))
        say(*(f"{target}: {run}" for target, run in self._list_remembered().items()))

    def run(self) -> int:
        """The exit code."""
        shutil.rmtree(REPORTS, ignore_errors=True)
        REPORTS.mkdir(parents=True)
        for target, run in self._list_remembered().items():
            summary.note_of(REPORTS, target).write_text(run)
        wanted = self._order_suites()
        self._install(wanted)
        with FirstBuilds([suite.target for suite in wanted], REPORTS) as builds:
            self._check()
            for target in FOR_EVERY_CHANGE:
                announce(f"make {target}")
                self._run_target(target)
            self._run_demo()
            unfit = self._run_suites(wanted, builds)
        if self._is_release:
            self._run_release_suites()
        return self._report(unfit)

    def _order_suites(self) -> list[Suite]:
        """Those that run: first what never passed for these files, then what did so long ago or on another machine."""
        return sorted((suite for suite in self._suites if self._reasons[suite.target]), key=self._memory.knows_files)

    def _list_remembered(self) -> dict[str, str]:
        """What is said of each suite that does not run."""
        runs = {suite.target: self._memory.find_run(suite) for suite in self._suites if not self._reasons[suite.target]}
        return {target: f"remembered ({run.digest}, {run.date}, {run.commit})" for target, run in runs.items() if run}

    def _install(self, wanted: Sequence[Suite]) -> None:
        announce("programs")
        needs = ["setup", "test", *(need for suite in wanted for need in suite.needs)]
        subprocess.run([".ci/need", "--install", *needs, *(RELEASE_NEEDS if self._is_release else ())], check=True)
        announce("packages")
        subprocess.run(["make", "setup"], check=True)

    def _check(self) -> None:
        announce("make check")
        subprocess.run(["make", "check"], check=True)

    def _run_demo(self) -> None:
        announce("make demo")
        started = time.monotonic()
        code = subprocess.run(["make", "demo"], check=False).returncode
        seconds = time.monotonic() - started
        if code or seconds > DEMO_SECONDS:
            say(f"make demo ended with {code} after {seconds:.0f} s, of which it may take {DEMO_SECONDS}")
            self._broken.append("demo")

    def _run_suites(self, wanted: Sequence[Suite], builds: FirstBuilds) -> str | None:
        """The first that did not fit into the time, and why; None if all ran."""
        for suite in wanted:
            announce(f"make {suite.target}")
            builds.wait(suite.target)
            left = LIMIT_MINUTES * 60 - (time.monotonic() - self._started)
            needed = self._memory.estimate_seconds(suite, self._speed)
            if needed > left and not self._is_release:
                return f"{suite.target} was not begun: it takes about {needed:.0f} s here, and {left:.0f} s of {LIMIT_MINUTES} min are left"
            self._run_in_copy(suite)
        return None

    def _run_in_copy(self, suite: Suite) -> None:
        digest = digest_of(ROOT, suite)
        copy = COPIES / suite.target
        copy_files(ROOT, suite.target, copy)
        packages = ROOT / os.environ.get("VENV", ".venv")
        variables = {**suite.variables, "VENV": ".venv", "PACKAGES_OF": str(packages)}
        if self._run_target(suite.target, folder=copy, variables=variables):
            figures = summary.read_times(REPORTS)[suite.target]
            self._memory.remember(suite, digest=digest, seconds=figures["seconds"], speed=figures["speed"])
        else:
            self._memory.forget(suite)

    def _run_target(
        self, target: str, *words: str, folder: Path = ROOT, variables: Mapping[str, str] | None = None
    ) -> bool:
        """Whether it passed whole. What fails does not keep the next ones from being run."""
        report = REPORTS / f"{target}.xml"
        environment = {**os.environ, "PYTEST_ADDOPTS": f"--junitxml={report}", "VRAMPACK_TIMES": str(REPORTS / "times")}
        environment |= variables or {}
        left = None if self._is_release else END_MINUTES * 60 - (time.monotonic() - self._started)
        code = run_program(["make", target, *words], folder=folder, environment=environment, seconds=left)
        if code == OUT_OF_TIME:
            say(f"make {target} was ended after {END_MINUTES} minutes of .ci/run")
        if code:
            self._broken.append(target)
        if target in WITHOUT_REPORT:
            return code == 0
        say(*summary.list_slowest(report))
        return code == 0 and not summary.find_complaints(REPORTS, target)

    def _run_release_suites(self) -> None:
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        for target in RELEASE_SUITES:
            announce(f"make {target}")
            self._run_target(target, f"VERSION={version}")

    def _report(self, unfit: str | None) -> int:
        announce("what ran")
        expected = [*FOR_EVERY_CHANGE, *(suite.target for suite in self._suites)]
        if self._is_release:
            expected += [target for target in RELEASE_SUITES if target not in WITHOUT_REPORT]
        if summary.main(REPORTS, expected):
            self._broken.append("summary")
        say(
            f"all of it: {time.monotonic() - self._started:.0f} s, a core is {self._speed:.2f} times as fast as the reference"
        )
        if unfit:
            say(unfit)
        if self._broken:
            say(f"failed: {' '.join(self._broken)}")
        return 1 if self._broken or unfit else 0


def main(options: set[str]) -> int:
    """The exit code."""
    ci_run = CiRun(is_all="--all" in options, is_release="--release" in options)
    ci_run.plan()
    return 0 if "--plan" in options else ci_run.run()


def announce(title: str) -> None:
    say("", f"=== {title}")


def say(*lines: str) -> None:
    """At once, so that it stands before what the next program prints."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(set(sys.argv[1:])))
    except InputsError as error:
        sys.exit(f".ci/run: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f".ci/run: {' '.join(error.cmd)} ended with {error.returncode}")
