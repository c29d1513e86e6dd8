"""The main part of `.ci/run`: which suites have to run, in which order and in what time, and what they came to.

    programs, packages > check, test, mutations, demo > the other suites, each in a copy of the files it reads > summary
                       > meanwhile, at the lowest priority, what those build once

A suite that passed for the same files, on a machine of the same kind, within a fortnight, is remembered and not run again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import summary
from first_builds import FirstBuilds
from inputs import InputsError, copy_files
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
"""A suite that takes longer than last time is stopped at this minute."""
DEMO_SECONDS = 120
GONE = "VRAMPACK_CI_SECONDS"
"""How long `.ci/run` has run before this program."""
OF_TARGETS = ("ARGS", "TESTS", "BASE", "ARCH", "PARTS", "KUBEBUILDER_ASSETS", "MAKEFLAGS")
"""Variables with which a target tests something else; so do those that begin with VRAMPACK_."""


class CiRun:
    """One run, and what it found."""

    def __init__(self, *, is_all: bool, is_release: bool) -> None:
        self._started = time.monotonic() - float(os.environ.get(GONE, "0"))
        self._is_release = is_release
        self._suites = list_suites(is_release=is_release)
        self._memory = Memory(ROOT, Machine.read(), self._suites)
        self._speed = measure_speed()
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name not in OF_TARGETS and not name.startswith("VRAMPACK_")
        }
        self._reasons = {
            suite.target: "every suite was asked for"
            if is_all or is_release
            else self._memory.find_reason_to_run(suite)
            for suite in self._suites
        }
        self._remembered = {
            suite.target: f"remembered ({run.digest}, {run.date}, {run.commit})"
            for suite in self._suites
            if not self._reasons[suite.target] and (run := self._memory.find_run(suite))
        }
        self._failed: list[str] = []

    def print_plan(self) -> None:
        """Which suites run, in this order and why, and which are remembered."""
        print_title("what has to run")
        print_lines(*(f"{suite.target}: runs: {self._reasons[suite.target]}" for suite in self._order_suites()))
        print_lines(*(f"{target}: {said}" for target, said in self._remembered.items()))

    def run(self) -> int:
        """The exit code."""
        shutil.rmtree(REPORTS, ignore_errors=True)
        REPORTS.mkdir(parents=True)
        wanted = self._order_suites()
        not_begun: str | None = None
        self._install(wanted)
        with FirstBuilds(wanted, REPORTS) as builds:
            if not self._make("check"):
                return 1
            for target in FOR_EVERY_CHANGE:
                self._run_target(target)
            self._run_demo()
            not_begun = self._run_suites(wanted, builds)
        if self._is_release:
            self._run_release_suites()
        return self._report(not_begun)

    def _order_suites(self) -> list[Suite]:
        """Those that run: first what never passed for these files, then what did so long ago or on another machine."""
        wanted = [suite for suite in self._suites if self._reasons[suite.target]]
        return sorted(wanted, key=self._memory.has_passed_for_files)

    def _install(self, wanted: Sequence[Suite]) -> None:
        print_title("programs")
        needs = ["setup", "test", *(need for suite in wanted for need in suite.needs)]
        subprocess.run([".ci/need", "--install", *needs, *(RELEASE_NEEDS if self._is_release else ())], check=True)
        print_title("packages")
        subprocess.run(["make", "setup"], check=True)

    def _run_demo(self) -> None:
        started = time.monotonic()
        is_done = self._make("demo")
        seconds = time.monotonic() - started
        if is_done and seconds > DEMO_SECONDS:
            print_lines(f"make demo took {seconds:.0f} s, more than {DEMO_SECONDS}")
            self._failed.append("demo")

    def _run_suites(self, wanted: Sequence[Suite], builds: FirstBuilds) -> str | None:
        """The first that did not fit into the time, and why; None if all ran."""
        for suite in wanted:
            print_title(f"first builds of {suite.target}")
            started = time.monotonic()
            needed = self._memory.estimate_seconds(suite, self._speed)
            spare = None if self._is_release else self._count_left() - needed
            try:
                print_lines(builds.wait(suite, spare))
            except TimeoutError:
                return (
                    f"{suite.target} was not begun: it takes about {needed:.0f} s here, and of {LIMIT_MINUTES} min "
                    f"{self._count_left():.0f} s are left"
                )
            print_lines(f"waited {time.monotonic() - started:.0f} s for them")
            self._run_in_copy(suite)
        return None

    def _count_left(self, minutes: float = LIMIT_MINUTES) -> float:
        """Seconds until then."""
        return minutes * 60 - (time.monotonic() - self._started)

    def _run_in_copy(self, suite: Suite) -> None:
        copy = COPIES / suite.target
        digest = copy_files(ROOT, suite, copy)
        before = self._memory.forget(suite)
        packages = ROOT / os.environ.get("VENV", ".venv")
        variables = {**suite.variables, "VENV": ".venv", "PACKAGES_OF": str(packages)}
        if not self._run_target(suite.target, folder=copy, variables=variables):
            return
        figures = summary.read_times(REPORTS)[suite.target]
        run = self._memory.describe_run(suite, digest=digest, seconds=figures["seconds"], speed=figures["speed"])
        if not self._is_release:
            self._memory.remember(run)
        elif before:  # what a release runs is more, and has other digests
            self._memory.remember(before)

    def _run_target(
        self, target: str, *words: str, folder: Path = ROOT, variables: Mapping[str, str] | None = None
    ) -> bool:
        """Whether it passed whole. What fails does not keep the next ones from being run."""
        report = REPORTS / f"{target}.xml"
        settings = {"PYTEST_ADDOPTS": f"--junitxml={report}", "VRAMPACK_TIMES": str(REPORTS / "times")}
        is_green = self._make(target, *words, folder=folder, variables=settings | dict(variables or {}))
        if target in WITHOUT_REPORT:
            return is_green
        print_lines(*summary.list_slowest(report))
        return is_green and not summary.find_complaints(REPORTS, target)

    def _make(self, target: str, *words: str, folder: Path = ROOT, variables: Mapping[str, str] | None = None) -> bool:
        """Whether the target was made in time."""
        print_title(f"make {target}")
        seconds = None if self._is_release else max(1, self._count_left(END_MINUTES))
        environment = self._environment | dict(variables or {})
        code = run_program(["make", target, *words], folder=folder, environment=environment, seconds=seconds)
        if code == OUT_OF_TIME:
            print_lines(f"make {target} was stopped: .ci/run has run for {END_MINUTES} minutes")
        if code:
            self._failed.append(target)
        return code == 0

    def _run_release_suites(self) -> None:
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        for target in RELEASE_SUITES:
            self._run_target(target, f"VERSION={version}")

    def _report(self, not_begun: str | None) -> int:
        print_title("what ran")
        expected = [*FOR_EVERY_CHANGE, *(suite.target for suite in self._suites)]
        if self._is_release:
            expected += [target for target in RELEASE_SUITES if target not in WITHOUT_REPORT]
        is_whole = summary.main(REPORTS, expected, self._remembered) == 0
        seconds = time.monotonic() - self._started
        print_lines(f"all of it: {seconds:.0f} s; a core is {self._speed:.2f} times as fast as the reference")
        if not_begun:
            print_lines(not_begun)
        if self._failed:
            print_lines(f"failed: {' '.join(self._failed)}")
        return 0 if is_whole and not self._failed and not not_begun else 1


def main(options: set[str]) -> int:
    """The exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))  # so that what was started is ended
    ci_run = CiRun(is_all="--all" in options, is_release="--release" in options)
    ci_run.print_plan()
    return 0 if "--plan" in options else ci_run.run()


def print_title(title: str) -> None:
    print_lines("", f"=== {title}")


def print_lines(*lines: str) -> None:
    """At once, so that they stand before what the next program prints."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(set(sys.argv[1:])))
    except InputsError as error:
        sys.exit(f".ci/run: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f".ci/run: {' '.join(error.cmd)} ended with {error.returncode}")
