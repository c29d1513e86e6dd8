"""The verdict of a row, the complaints about a table, and the exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import MODULES, build_parser, main
from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.calibration import measure_slowness, scale_row
from benchmarks.options import BenchmarkOptions
from benchmarks.table import EXPECTED_KEYS, KEYS_BY_NODE_COUNT, find_complaints, list_expected_keys, render

A_ROW = BenchmarkRow("a", "an answer, p50", "python -m benchmarks a", 1.0, "ms", 2.0, 3.0)
KEYS = EXPECTED_KEYS["no"]

VERDICTS = {
    "under the goal": (replace(A_ROW, figure=1.0), "PASS"),
    "at the goal": (replace(A_ROW, figure=2.0), "PASS"),
    "between goal and floor": (replace(A_ROW, figure=2.1), "NOT REACHED"),
    "at the floor": (replace(A_ROW, figure=3.0), "NOT REACHED"),
    "over the floor": (replace(A_ROW, figure=3.1), "FAIL"),
    "a rate over the goal": (replace(A_ROW, figure=10, goal=9, floor=6, larger_is_better=True), "PASS"),
    "a rate between": (replace(A_ROW, figure=6, goal=9, floor=6, larger_is_better=True), "NOT REACHED"),
    "a rate under the floor": (replace(A_ROW, figure=5.9, goal=9, floor=6, larger_is_better=True), "FAIL"),
    "a floor without a goal": (replace(A_ROW, figure=2.0, goal=None), "NOT REACHED"),
    "only shown": (replace(A_ROW, goal=None, floor=None), "-"),
    "not measured": (replace(A_ROW, figure=None), "MISSING"),
    "not measured, only shown": (replace(A_ROW, figure=None, goal=None, floor=None), "MISSING"),
}


@pytest.mark.parametrize(("row", "verdict"), VERDICTS.values(), ids=VERDICTS)
def test_a_row_is_judged_against_goal_and_floor(row: BenchmarkRow, verdict: str) -> None:
    assert row.verdict == verdict


COMPLAINTS = {
    "nothing wrong": ([A_ROW], ["a"], []),
    "a goal that is not reached is no failure": ([replace(A_ROW, figure=2.5)], ["a"], []),
    "a floor that is missed": ([replace(A_ROW, figure=4.0)], ["a"], ["a: 4 ms misses the floor"]),
    "a row that is missing": ([A_ROW], ["a", "b"], ["b: the row is missing"]),
    "a row without a figure": ([replace(A_ROW, figure=None)], ["a"], ["a: not measured"]),
    "an unlisted row": ([A_ROW], [], ["a: a row that is not in benchmarks/table.py"]),
    "no row at all": ([], ["a"], ["a: the row is missing"]),
}


@pytest.mark.parametrize(("rows", "expected", "wrong"), COMPLAINTS.values(), ids=COMPLAINTS)
def test_missing_and_unexpected_rows_are_complaints(
    rows: list[BenchmarkRow], expected: list[str], wrong: list[str]
) -> None:
    assert find_complaints(rows, expected) == wrong


def test_the_table_is_rendered() -> None:
    long = BenchmarkRow("b", "something", "python -m benchmarks b", 1234.5, "pods/s", None, None, note="and more")
    assert render([A_ROW, long]) == (
        "WHAT            FIGURE  UNIT    GOAL  FLOOR  VERDICT  COMMAND\n"
        "an answer, p50       1  ms         2      3  PASS     python -m benchmarks a\n"
        "something         1234  pods/s     -      -  -        python -m benchmarks b\n"
        "\n"
        "something: and more\n"
    )


def test_every_group_has_a_module_and_every_key_stands_once() -> None:
    keys = [key for keys in EXPECTED_KEYS.values() for key in keys]
    assert list(MODULES) == list(EXPECTED_KEYS)
    assert len(set(keys)) == len(keys)


def test_a_requested_size_expects_only_its_own_rows() -> None:
    assert [key for nodes in KEYS_BY_NODE_COUNT for key in list_expected_keys(["verbs"], nodes)] == list(
        EXPECTED_KEYS["verbs"]
    )
    assert list_expected_keys(["no"], 5000) == list(EXPECTED_KEYS["no"])


SCALED = {
    "a time": (A_ROW, 2.0, (4.0, 6.0)),
    "a rate": (replace(A_ROW, unit="pods/s", goal=9, floor=6, larger_is_better=True), 2.0, (4.5, 3.0)),
    "a ratio": (replace(A_ROW, unit="x"), 2.0, (2.0, 3.0)),
    "a faster machine": (A_ROW, 0.5, (2.0, 3.0)),
    "only shown": (replace(A_ROW, goal=None, floor=None), 2.0, (None, None)),
}


@pytest.mark.parametrize(("row", "slowness", "bounds"), SCALED.values(), ids=SCALED)
def test_goal_and_floor_are_scaled_by_the_slowness_of_the_machine(
    row: BenchmarkRow, slowness: float, bounds: tuple[float | None, float | None]
) -> None:
    scaled = scale_row(row, slowness)
    assert (scaled.goal, scaled.floor) == bounds
    assert scaled.figure == row.figure


def test_slowness_is_measured() -> None:
    assert 0.05 < measure_slowness() < 50


def documented(pattern: str) -> list[str]:
    """What opens the rows of the tables of docs/benchmarks.md."""
    return re.findall(pattern, (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(), re.MULTILINE)


def test_every_row_is_documented_in_its_order_and_no_other() -> None:
    assert documented(r"^\| `([a-z][^`]*)`") == [key for keys in EXPECTED_KEYS.values() for key in keys]


def test_every_flag_is_documented_and_no_other() -> None:
    flags = {flag for action in build_parser()._actions for flag in action.option_strings if flag.startswith("--")}
    assert set(documented(r"^\| `(--[^`]+)`")) == flags - {"--help"}


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Make this module act as a group: its figure is the seed, and with seed 9 a row is missing."""
    for key in KEYS[: -1 if options.seed == 9 else None]:
        yield replace(A_ROW, key=key, figure=float(options.seed))


EXITS = {"goals met": (1, 0), "floors met": (3, 0), "a floor missed": (4, 1), "a row lost": (9, 1)}


@pytest.mark.parametrize(("figure", "code"), EXITS.values(), ids=EXITS)
def test_the_exit_code_and_the_file_report_complaints(
    figure: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(MODULES, "no", __name__)
    monkeypatch.setattr("benchmarks.__main__.measure_slowness", lambda: 1.0)
    file = tmp_path / "made" / "bench.json"
    assert main(["no", "--seed", str(figure), "--json", str(file)]) == code
    written = json.loads(file.read_text())
    assert bool(written["complaints"]) is bool(code)
    assert [(row["key"], row["figure"]) for row in written["rows"]] == [
        (key, float(figure)) for key in KEYS[: len(written["rows"])]
    ]
    assert "WHAT " in capsys.readouterr().out


@pytest.mark.parametrize("module", ["benchmarks.not_there", "tests.benchmarks"], ids=["no module", "no rows in it"])
def test_a_failing_group_fails_the_run_even_if_no_row_is_expected(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODULES, "no", module)
    monkeypatch.setattr("benchmarks.__main__.measure_slowness", lambda: 1.0)
    monkeypatch.setitem(EXPECTED_KEYS, "no", ())
    assert main(["no", "--json", str(tmp_path / "bench.json")]) == 1


def test_a_group_that_does_not_exist_is_misuse() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nothing"])
    assert ended.value.code == 2
