"""The whole table: which rows must be present, how to print them, and what the exit code says about them.

A broken benchmark shows no row, and a missing row would miss no floor. So every row is listed here by its key; a requested row
that is missing makes the table incomplete, which is a failure like a missed floor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from benchmarks.benchmark_row import BenchmarkRow
from vrampack.cli.inspect.text_columns import align_columns

EXPECTED_KEYS = {
    "verbs": (
        "filter-1000-p50",
        "verbs-1000-cpu",
        "bind-calls",
        "verbs-5000-p50",
        "verbs-5000-p99",
        "verbs-5000-sampled-p50",
        "verbs-5000-sampled-p99",
        "verbs-15000-p50",
        "verbs-15000-p99",
    ),
    "no": ("no-1000-p50", "no-1000-p99", "no-1000-client-p50", "no-1000-writes"),
    "agent": ("agent-allocate-p99", "agent-rss", "agent-idle", "agent-node-writes"),
    "rebuild": ("rebuild-seconds", "rebuild-start-seconds", "rebuild-rss", "rebuild-peak-rss"),
    "scale": ("scale-ready", "scale-rss", "scale-events", "scale-p50", "scale-p99"),
    "footprint": (
        *(f"footprint-{nodes}-{name}" for nodes in (100, 1000, 5000) for name in ("rss", "peak-rss", "rest")),
        "footprint-webhook-rss",
        "footprint-webhook-peak-rss",
    ),
    "scheduler": (
        "rate-none",
        "rate-idle",
        "rate-prioritize",
        "rate-filter",
        "rate-auto",
        "rate-no-scores",
        "rate-prioritize-to-idle",
        "rate-filter-to-idle",
        "rate-filter-to-none",
        "rate-prioritize-cpu-to-idle",
        "rate-filter-cpu-to-idle",
        "rate-stale",
    ),
    "storm": (
        "storm-stale",
        "storm-one-p50",
        "storm-one-p99",
        "storm-one-settling",
        "storm-two-p50",
        "storm-two-p99",
        "storm-two-settling",
        "storm-idle-p50",
        "storm-idle-p99",
        "storm-idle-settling",
        "storm-5000-p50",
        "storm-5000-p99",
        "storm-5000-settling",
    ),
    "leases": (
        "leases-write-cpu",
        "leases-burst-pace",
        "leases-burst-cpu",
        "leases-storm-p50",
        "leases-storm-p99",
        "leases-storm-cpu",
    ),
    "admission": ("admission-plain", "admission-asking", "admission-status"),
    "adversarial": (
        "adversarial-none",
        "adversarial-annotations",
        "adversarial-wishes",
        "adversarial-labels",
        "adversarial-name-label",
        "adversarial-containers",
        "adversarial-shapes",
        "adversarial-victims",
        "adversarial-nominees",
        "adversarial-scrape",
        "adversarial-beside",
        "adversarial-p99",
        "adversarial-rss",
    ),
    "preload": ("preload-ioctl", "preload-control"),
    "packing": ("packing-rate", "packing-rss", "packing-start"),
    "ui": ("ui-start", "ui-first-page", "ui-first-page-size", "ui-page", "ui-page-size"),
}
"""The keys of each group's rows. Groups run in this order."""

KEYS_BY_NODE_COUNT = {
    1000: EXPECTED_KEYS["verbs"][:3],
    5000: EXPECTED_KEYS["verbs"][3:7],
    15000: EXPECTED_KEYS["verbs"][7:],
}
"""The rows of the group `verbs` by number of nodes; `--nodes` selects one."""


def list_expected_keys(groups: Collection[str], nodes: int | None = None) -> list[str]:
    """The keys of the rows that must be present if these groups were requested."""
    keys = [key for group in groups for key in EXPECTED_KEYS[group]]
    left_out = {key for size, of_size in KEYS_BY_NODE_COUNT.items() if nodes not in (None, size) for key in of_size}
    return [key for key in keys if key not in left_out]


def find_complaints(rows: Sequence[BenchmarkRow], expected: Collection[str]) -> list[str]:
    """Why this table is a failure, one line each; none if every row is present and every floor is met."""
    present = {row.key for row in rows}
    found = [f"{key}: the row is missing" for key in expected if key not in present]
    found += [f"{row.key}: not measured" for row in rows if row.verdict == "MISSING"]
    found += [
        f"{row.key}: {_format_figure(row.figure)} {row.unit} misses the floor" for row in rows if row.verdict == "FAIL"
    ]
    return found + [f"{key}: a row that is not in benchmarks/table.py" for key in sorted(present - set(expected))]


def render(rows: Sequence[BenchmarkRow]) -> str:
    """The table as text."""
    heading = ("WHAT", "FIGURE", "UNIT", "GOAL", "FLOOR", "VERDICT", "COMMAND")
    cells = [
        (
            row.what,
            _format_figure(row.figure),
            row.unit,
            _format_figure(row.goal),
            _format_figure(row.floor),
            row.verdict,
            row.command,
        )
        for row in rows
    ]
    return align_columns([heading, *cells], right_columns={1, 3, 4}) + _format_notes(rows)


def _format_notes(rows: Sequence[BenchmarkRow]) -> str:
    """The notes, which are too long for a column."""
    notes = [f"{row.what}: {row.note}\n" for row in rows if row.note]
    return "".join(["\n", *notes] if notes else [])


def _format_figure(value: float | None) -> str:
    """A figure with three significant digits; whole numbers as they are."""
    if value is None:
        return "-"
    if value == int(value) or value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
