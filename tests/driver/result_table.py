"""What `make driver-test` prints at its end: a row per behaviour, a column per driver and kernel."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest

COMBINATION = re.compile(r"\[(?:opened-)?(\d+-[\d.]+)")
WIDTH = 78


class DriverResultTable:
    """Filled from reports, which workers send; a test belongs to the combination that its name has."""

    def __init__(self) -> None:
        self._rows: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = COMBINATION.search(report.nodeid)
        if found and (report.when == "call" or report.outcome != "passed"):
            name = report.nodeid.partition("::test_")[2].partition("[")[0].replace("_", " ")
            self._rows[name][found[1]][report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        columns = sorted({column for row in self._rows.values() for column in row})
        terminalreporter.section("NVIDIA's driver, by release and kernel", "-")
        terminalreporter.write_line(f"{'BEHAVIOUR':<{WIDTH}}" + "".join(f"  {column:>9}" for column in columns))
        for name, row in sorted(self._rows.items()):
            cells = (_format_outcomes(row[column]) for column in columns)
            terminalreporter.write_line(f"{name[:WIDTH]:<{WIDTH}}" + "".join(f"  {cell:>9}" for cell in cells))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(DriverResultTable())


def _format_outcomes(outcomes: Counter[str]) -> str:
    if not outcomes:
        return "-"
    wrong = outcomes.total() - outcomes["passed"]
    return f"{wrong} FAIL" if wrong else f"{outcomes['passed']} pass"
