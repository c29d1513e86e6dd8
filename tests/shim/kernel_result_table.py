"""What `make shim-test` prints of the kernel module: a table per kernel, a row per scenario, and one line of judgement.

    RESULT PASS kernel=6.1.0-56-cloud-amd64 checks=57

A test belongs to the kernel that its parameter `kernel` names. Where all of them should have run, a kernel without a test
is a failure, and the run's too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.machine.kernels import NAMES

TESTS = Path(__file__).parent / "kmod"
RELEASES = pytest.StashKey[dict[str, str]]()
"""By the kernel's name: what its uname says. Kept by the fixture that fetches it."""
WIDTH = 92


@dataclass(slots=True)
class KernelScenarioResult:
    """One test function, with all its cases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0

    @property
    def result(self) -> str:
        wrong = self.outcomes.total() - self.outcomes["passed"]
        return f"{wrong} of {self.outcomes.total()} FAIL" if wrong else "pass"


class KernelResultTable:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._kernels: dict[str, str] = {}
        self._scenarios: defaultdict[str, dict[str, KernelScenarioResult]] = defaultdict(dict)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "kernel" in item.callspec.params:
            self._kernels[item.nodeid] = str(item.callspec.params["kernel"])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        kernel = self._kernels.get(report.nodeid)
        if kernel is None:
            return
        name = report.nodeid.partition("::")[2].partition("[")[0].removeprefix("test_").replace("_", " ")
        scenario = self._scenarios[kernel].setdefault(name, KernelScenarioResult())
        scenario.seconds += report.duration
        if report.when == "call" or report.outcome != "passed":
            scenario.outcomes[report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for kernel in self._shown():
            terminalreporter.section(f"kernel module on {kernel}", "-")
            for line in self.lines(kernel):
                terminalreporter.write_line(line)
        for kernel in self._shown():
            terminalreporter.write_line(self.judgement(kernel))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and not all(map(self._is_passed, self._shown())):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def lines(self, kernel: str) -> Iterable[str]:
        """In the order in which they ran."""
        yield f"{'SCENARIO':<{WIDTH}}  {'CHECKS':>6}  {'SECONDS':>7}  RESULT"
        for name, scenario in self._scenarios[kernel].items():
            checks = scenario.outcomes.total()
            yield f"{name[:WIDTH]:<{WIDTH}}  {checks:>6}  {scenario.seconds:>7.1f}  {scenario.result}"

    def judgement(self, kernel: str) -> str:
        release = self._config.stash.setdefault(RELEASES, {}).get(kernel, kernel)
        full_name = release if release.startswith(kernel) else f"{kernel}-{release}"
        outcomes = self._outcomes(kernel)
        word = "PASS" if self._is_passed(kernel) else "FAIL"
        wrong = "".join(f" {name}={count}" for name, count in sorted(outcomes.items()) if name != "passed")
        return f"RESULT {word} kernel={full_name} checks={outcomes['passed']}{wrong}"

    def _is_passed(self, kernel: str) -> bool:
        outcomes = self._outcomes(kernel)
        return 0 < outcomes["passed"] == outcomes.total()

    def _outcomes(self, kernel: str) -> Counter[str]:
        return sum((scenario.outcomes for scenario in self._scenarios[kernel].values()), Counter[str]())

    def _shown(self) -> Iterable[str]:
        chosen = self._config.getoption("kernel") or NAMES
        return [name for name in NAMES if self._scenarios[name] or (name in chosen and self._should_all_run())]

    def _should_all_run(self) -> bool:
        """Whether only a folder that has all of these tests, or their mark, was asked for."""
        option, arguments = self._config.option, self._config.args
        is_part = option.keyword or option.collectonly or option.ignore or option.markexpr not in ("", "shim")
        folders = [Path(each).resolve() for each in arguments if "::" not in each]
        return not is_part and any(TESTS.is_relative_to(folder) for folder in folders)
