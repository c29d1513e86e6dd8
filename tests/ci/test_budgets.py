"""How long each suite may take is reported by its target and by .ci/run, and never decides whether it passed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
TIMED = REPOSITORY / ".ci" / "timed"
SUMMARY = REPOSITORY / ".ci" / "summary.py"
MINUTE = {"s": 1, "min": 60}


def read_budgets() -> dict[str, int]:
    lines = (REPOSITORY / ".ci" / "budgets").read_text().splitlines()
    return {suite: int(seconds) for suite, seconds in (line.split() for line in lines if not line.startswith("#"))}


def test_the_testing_page_lists_the_budgets_that_ci_uses() -> None:
    rows = re.findall(
        r"^\| `make ([a-z0-9-]+)` \|.*\| < (\d+) (s|min) \|$",
        (REPOSITORY / "docs/testing.md").read_text(),
        re.MULTILINE,
    )
    assert {suite: int(number) * MINUTE[unit] for suite, number, unit in rows if suite != "demo"} == read_budgets()


def test_every_target_with_a_budget_is_timed() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    assert {*re.findall(r"\.ci/timed ([a-z0-9-]+)", makefile)} == {*read_budgets()}


def test_a_suite_prints_its_time_and_keeps_the_exit_code(tmp_path: Path) -> None:
    """Two builds at the same time, and a third one later: 4 s and 3 s."""
    spans = r"1.0 5.0\n3.0 4.0\n10.0 13.0\n"
    build = f"import os; open(os.environ['VRAMPACK_BUILD_TIMES'], 'a').write('{spans}'); raise SystemExit(3)"
    done = subprocess.run(
        [TIMED, "image", sys.executable, "-c", build],
        env={**os.environ, "VRAMPACK_TIMES": str(tmp_path / "times")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert re.match(r"make image: 0 s of 120, first builds 7 s more; \d+ CPU s; a core is [\d.]+ times", done.stdout)
    assert json.loads((tmp_path / "times").read_text())["built"] == 7


def test_a_flaky_suite_is_found_with_its_seed(tmp_path: Path) -> None:
    makefile = "suite:\n\t@echo Using --randomly-seed=7; [ -e ran ] && echo FAILED tests/a.py::b && exit 1; touch ran\n"
    (tmp_path / "Makefile").write_text(makefile)
    done = subprocess.run(
        [REPOSITORY / ".ci/flakes", "suite", "2"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert [line.split(maxsplit=3)[1::2] for line in done.stdout.splitlines()[1:]] == [
        ["no", "passed, seed 7"],
        ["yes", "FAILED: tests/a.py::b, seed 7"],
    ]


def test_a_suite_over_its_budget_is_reported_but_does_not_fail(tmp_path: Path) -> None:
    (tmp_path / "e2e.xml").write_text('<testsuite tests="2" failures="0" errors="0" skipped="0"/>')
    times = [
        {"suite": suite, "seconds": seconds, "built": 0, "cpu": 9, "budget": 540, "speed": 1.0}
        for suite, seconds in (("e2e", 541), ("image", 540))
    ]
    (tmp_path / "times").write_text("".join(f"{json.dumps(row)}\n" for row in times))
    done = subprocess.run([sys.executable, SUMMARY, tmp_path, "e2e"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines() if line.endswith("OVER")] == ["e2e"]
