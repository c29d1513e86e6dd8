"""Every group runs, on a thousandth of its sizes, and yields the rows that table and documentation list."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from benchmarks import adversarial, agent, rebuild, repeated_rejection, verbs
from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.options import BenchmarkOptions
from benchmarks.table import EXPECTED_KEYS, KEYS_BY_NODE_COUNT
from tests.benchmarks.documented_rows import DOCS, documented_line

SHRINK = 1000
GROUPS = {
    "verbs": verbs.measure_rows,
    "no": repeated_rejection.measure_rows,
    "agent": agent.measure_rows,
    "rebuild": rebuild.measure_rows,
    "adversarial": adversarial.measure_rows,
}


# The turns of an event loop are timed by a library that is compiled: `make test` needs no compiler.
@pytest.mark.parametrize(
    "group", [pytest.param(name, marks=pytest.mark.shim if name == "adversarial" else ()) for name in GROUPS]
)
def test_a_group_yields_its_rows(group: str) -> None:
    measure: Callable[[BenchmarkOptions], Iterator[BenchmarkRow]] = GROUPS[group]
    found = list(measure(BenchmarkOptions(shrink=SHRINK)))
    assert [row.key for row in found] == list(EXPECTED_KEYS[group])
    assert all(row.figure is not None and row.figure > 0 for row in found)
    assert [line for row in found if (line := documented_line(row)) not in DOCS] == []


def test_one_size_alone_and_a_bind_is_one_call() -> None:
    found = list(verbs.measure_rows(BenchmarkOptions(shrink=SHRINK, nodes=1000)))
    assert [row.key for row in found] == list(KEYS_BY_NODE_COUNT[1000])
    (row,) = [row for row in found if row.key == "bind-calls"]
    assert (row.figure, row.verdict) == (1, "PASS")
