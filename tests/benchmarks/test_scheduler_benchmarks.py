"""The benchmarks that need a real control plane still run, at a size at which their figures mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from benchmarks import admission_policies, scheduler_rate, storm, usage_leases
from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.live_cluster import run_control_plane
from benchmarks.options import BenchmarkOptions
from benchmarks.scheduler_rate import NOT_SERVED
from benchmarks.table import EXPECTED_KEYS
from tests.benchmarks.documented_rows import DOCS, documented_line
from tests.support.control_plane.cluster import ControlPlane

pytestmark = pytest.mark.e2e
GROUPS = {
    "scheduler": scheduler_rate.measure_rows_on,
    "storm": storm.measure_rows_on,
    "leases": usage_leases.measure_rows_on,
    "admission": admission_policies.measure_rows_on,
}


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    with run_control_plane() as made:
        yield made


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An empty one."""
    yield control_plane
    control_plane.reset()


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_yields_its_rows(cluster: ControlPlane, group: str) -> None:
    measure: Callable[[ControlPlane, BenchmarkOptions], Iterator[BenchmarkRow]] = GROUPS[group]
    found = list(measure(cluster, BenchmarkOptions(shrink=200)))
    measured = [row for row in found if row.note != NOT_SERVED]
    assert [row.key for row in found] == list(EXPECTED_KEYS[group])
    assert [row.key for row in measured if row.figure is None] == []
    assert [line for row in found if (line := documented_line(row)) not in DOCS] == []
