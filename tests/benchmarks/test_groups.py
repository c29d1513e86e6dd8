"""Every group runs, on a thousandth of its sizes, and yields the rows that table and documentation list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from benchmarks import agent, packing_rate, rebuild, repeated_rejection, scale, ui_pages, verbs
from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.options import BenchmarkOptions
from benchmarks.table import KEYS_BY_NODE_COUNT
from tests.benchmarks.documented_rows import check_rows

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
    "packing": packing_rate.measure_rows,
    "ui": ui_pages.measure_rows,
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_yields_its_rows(group: str) -> None:
    measure: Callable[[BenchmarkOptions], Iterator[BenchmarkRow]] = GROUPS[group]
    check_rows(group, list(measure(BenchmarkOptions(shrink=SHRINK))))
