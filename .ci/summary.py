"""Says of each suite whether it ran or is remembered, and fails if one did neither: no report, no tests, or tests that were skipped.

    .ci/summary.py REPORTS SUITE..    times from REPORTS/times, which .ci/timed wrote

A suite over its budget is named, and fails nothing: minutes say as much of the machine as of the change.
What failed stands at the end, with its message: it would be lost among the tables and logs above.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

MESSAGE_LINES = 12
"""Of each failed test; the log has the rest."""
SLOWEST_TESTS = 10


def main(folder: Path, suites: Sequence[str], remembered: Mapping[str, str] = MappingProxyType({})) -> int:
    """The exit code: 0 when every suite ran whole and passed, or is `remembered`: by suite, what is said of that run."""
    passed = failed = 0
    complaints: list[str] = []
    failures: list[str] = []
    for suite in suites:
        report = folder / f"{suite}.xml"
        if suite in remembered:
            sys.stdout.write(f"{suite}: {remembered[suite]}\n")
            continue
        complaints += find_complaints(folder, suite)
        if report.exists():
            counts = _counts(report)
            failures += _failures(report)
            good = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
            bad = counts["failures"] + counts["errors"]
            sys.stdout.write(f"{suite}: ran: {good} passed, {bad} failed, {counts['skipped']} skipped\n")
            passed, failed = passed + good, failed + bad
    sys.stdout.write("".join(f"{line}\n" for line in (*_list_times(folder), *complaints, *failures)))
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed or complaints else 0


def find_complaints(folder: Path, suite: str) -> list[str]:
    """Why the suite does not count as one that ran, although no test of it failed."""
    report = folder / f"{suite}.xml"
    if not report.exists():
        return [f"{suite}: neither ran nor is remembered"]
    counts = _counts(report)
    return [f"{suite}: ran no test"] * (not counts["tests"]) + [f"{suite}: a skipped test is not a passed one"] * bool(
        counts["skipped"]
    )


def list_slowest(report: Path) -> list[str]:
    """The tests that took longest, with their seconds."""
    root = ET.parse(report).getroot() if report.exists() else ET.Element("testsuites")  # noqa: S314 - pytest has just written it
    seconds = {
        f"{case.get('classname')}::{case.get('name')}": float(case.get("time", "0")) for case in root.iter("testcase")
    }
    slowest = sorted(seconds.items(), key=lambda each: -each[1])[:SLOWEST_TESTS]
    return [f"slowest of {report.stem}:", *(f"{taken:8.1f} s  {name}" for name, taken in slowest)]


def read_times(folder: Path) -> dict[str, dict[str, Any]]:
    """What `.ci/timed` measured, by suite."""
    file = folder / "times"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {row["suite"]: row for row in rows}


def _list_times(folder: Path) -> list[str]:
    """A table, with the word OVER in its rows of suites that took more than their budget.

    `scaled` is what the seconds would be on the reference machine if no test waited: budgets are meant for that machine.
    """
    lines = [
        f"{row['suite']:12} {row['seconds']:6} {row['seconds'] * row['speed']:7.0f} {row['budget']:7} {row['built']:7} {row['cpu']:7} {row['speed']:6}"
        f"{' OVER' if row['seconds'] > row['budget'] else ''}"
        for row in read_times(folder).values()
    ]
    return [f"{'suite':12} seconds  scaled budget  builds     CPU  speed", *lines] if lines else []


def _counts(report: Path) -> dict[str, int]:
    root = ET.parse(report).getroot()  # noqa: S314 - a file that pytest has just written
    suites = [root] if root.tag == "testsuite" else list(root)
    return {
        name: sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    }


def _failures(report: Path) -> list[str]:
    root = ET.parse(report).getroot()  # noqa: S314 - a file that pytest has just written
    return [
        "\n".join((f"{case.get('classname')}::{case.get('name')}", *message.splitlines()[:MESSAGE_LINES]))
        for case in root.iter("testcase")
        for outcome in ("failure", "error")
        for message in (found.get("message", "") for found in case.iter(outcome))
    ]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
