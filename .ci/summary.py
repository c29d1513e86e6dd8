"""Says what ran, suite by suite, and fails if one did not: no report, no tests, or tests that were skipped.

    .ci/summary.py REPORTS SUITE..    times from REPORTS/times, which .ci/timed wrote

A suite over its budget is named, and fails nothing: minutes say as much of the machine as of the change.
What failed stands at the end, with its message: it would be lost among the tables and logs above.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

MESSAGE_LINES = 12
"""Of each failed test; the log has the rest."""


def main(folder: Path, suites: list[str]) -> int:
    """The exit code: 0 when every suite ran whole and passed."""
    passed = failed = 0
    complaints = []
    failures = []
    for suite in suites:
        report = folder / f"{suite}.xml"
        if not report.exists():
            complaints.append(f"{suite}: did not run")
            continue
        counts = _counts(report)
        failures += _failures(report)
        good = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
        bad = counts["failures"] + counts["errors"]
        sys.stdout.write(f"{suite}: {good} passed, {bad} failed, {counts['skipped']} skipped\n")
        passed, failed = passed + good, failed + bad
        if not counts["tests"]:
            complaints.append(f"{suite}: ran no test")
        if counts["skipped"]:
            complaints.append(f"{suite}: a skipped test is not a passed one")
    sys.stdout.write("".join(f"{line}\n" for line in (*_times(folder / "times"), *complaints, *failures)))
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed or complaints else 0


def _times(file: Path) -> list[str]:
    """A table, with the word OVER in its rows of suites that took more than their budget.

    `scaled` is what the seconds would be on the reference machine if no test waited: budgets are meant for that machine.
    """
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    lines = [
        f"{row['suite']:12} {row['seconds']:6} {row['seconds'] * row['speed']:7.0f} {row['budget']:7} {row['built']:7} {row['cpu']:7} {row['speed']:6}"
        f"{' OVER' if row['seconds'] > row['budget'] else ''}"
        for row in rows
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
