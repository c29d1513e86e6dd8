"""Every group runs, on a thousandth of its sizes, and yields the rows that table and documentation list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from benchmarks import adversarial, agent, packing_rate, rebuild, repeated_rejection, scale, ui_pages, verbs
from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.options import BenchmarkOptions
from benchmarks.table import EXPECTED_KEYS, KEYS_BY_NODE_COUNT
from tests.benchmarks.documented_rows import DOCS, documented_line

SHRINK = 1000


def measure_verbs(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """One size after the other, each asked for alone, and a bind is one call."""
    for nodes, keys in KEYS_BY_NODE_COUNT.items():
        found = {row.key: row for row in verbs.measure_rows(replace(options, nodes=nodes))}
        assert list(found) == list(keys)
        assert "bind-calls" not in found or (found["bind-calls"].figure, found["bind-calls"].verdict) == (1, "PASS")
        yield from found.values()


GROUPS = {
    "verbs": measure_verbs,
    "no": repeated_rejection.measure_rows,
    "agent": agent.measure_rows,
    "rebuild": rebuild.measure_rows,
    "scale": scale.measure_rows,
    "adversarial": adversarial.measure_rows,
    "packing": packing_rate.measure_rows,
    "ui": ui_pages.measure_rows,
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
