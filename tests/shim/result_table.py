"""What `make shim-test` prints at its end: one row per file, with what the file says of itself."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WIDTH = 78
WORSE = ("failed", "error", "skipped")


class ShimResultTable:
    """Counts what is reported of the files below this folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._outcomes: dict[str, Counter[str]] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        if not (self._root / file).is_relative_to(HERE):
            return
        self._seconds[file] += report.duration
        outcomes = self._outcomes.setdefault(file, Counter())
        if report.when == "call" or report.outcome != "passed":
            outcomes["error" if report.when != "call" and report.failed else report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._outcomes:
            return
        terminalreporter.section("shim")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> Iterable[str]:
        """In the order of the files' names."""
        yield f"{'PART':<26}  {'TESTS':>5}  {'SECONDS':>7}  RESULT  WHAT"
        for file, outcomes in sorted(self._outcomes.items()):
            part = str((self._root / file).relative_to(HERE).with_suffix("")).replace("test_", "")
            worst = next((each for each in WORSE if outcomes[each]), "")
            result = f"{outcomes[worst]} {worst}" if worst else "pass"
            yield f"{part:<26}  {outcomes.total():>5}  {self._seconds[file]:>7.1f}  {result:<6}  {_says(self._root / file)}"


def _says(file: Path) -> str:
    """The first sentence of its docstring."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    first = text.partition("\n")[0].removesuffix(".")
    return first if len(first) <= WIDTH else f"{first[: WIDTH - 2]} .."
