"""`python -m benchmarks [GROUP ...]`: measures, prints the table, and writes it to `build/bench.json`.

Exit 0: every row is present and meets its floor; 1: some row is not; 2: misuse.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import cast

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.calibration import measure_slowness, scale_row
from benchmarks.machine import describe_machine, format_load_average
from benchmarks.options import BenchmarkOptions
from benchmarks.table import EXPECTED_KEYS, find_complaints, list_expected_keys, render

log = logging.getLogger(__name__)

MODULES = {
    "verbs": "benchmarks.verbs",
    "no": "benchmarks.repeated_rejection",
    "agent": "benchmarks.agent",
    "rebuild": "benchmarks.rebuild",
    "scale": "benchmarks.scale",
    "footprint": "benchmarks.footprint",
    "scheduler": "benchmarks.scheduler_rate",
    "storm": "benchmarks.storm",
    "leases": "benchmarks.usage_leases",
    "admission": "benchmarks.admission_policies",
    "adversarial": "benchmarks.adversarial",
    "preload": "benchmarks.preload",
    "packing": "benchmarks.packing_rate",
    "ui": "benchmarks.ui_pages",
}


def main(arguments: Sequence[str]) -> int:
    """Run the named groups, or all."""
    given = build_parser().parse_args(arguments)
    groups = [group for group in EXPECTED_KEYS if group in given.groups] if given.groups else list(EXPECTED_KEYS)
    options = BenchmarkOptions(seed=given.seed, nodes=given.nodes, shrink=given.shrink)
    facts = {**describe_machine(), "seed": str(options.seed), "load before": format_load_average()}
    started = time.monotonic()
    rows: list[BenchmarkRow] = []
    slowness = dict.fromkeys(groups, 1.0)
    failed = [group for group in groups if not measure_group(group, options, rows, slowness)]
    facts["slowness"] = ", ".join(f"{group} {figure:.2f}" for group, figure in slowness.items())
    facts |= {"load after": format_load_average(), "seconds": f"{time.monotonic() - started:.0f}"}
    wrong = [f"{group}: failed, see above" for group in failed]
    wrong += find_complaints(rows, list_expected_keys(groups, options.nodes))
    _write_report(given.json, facts, rows, wrong)
    sys.stdout.write("".join(f"{name + ':':<13}{text}\n" for name, text in facts.items()) + "\n" + render(rows))
    if options.shrink > 1:
        sys.stderr.write("with --shrink the figures mean nothing\n")
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


def build_parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure what docs/benchmarks.md promises.")
    made.add_argument(
        "groups",
        nargs="*",
        metavar="GROUP",
        choices=[[], *EXPECTED_KEYS],
        help=f"groups to run, of {', '.join(EXPECTED_KEYS)} (default: all)",
    )
    made.add_argument(
        "--nodes", type=int, choices=(1000, 5000, 15000), help="only the rows of this size in the group verbs"
    )
    made.add_argument("--seed", type=int, default=1, help="the seed of all random choices (1)")
    made.add_argument(
        "--shrink", type=int, default=1, metavar="N", help="divide all sizes, to check that everything runs"
    )
    made.add_argument(
        "--json",
        type=Path,
        default=Path("build/bench.json"),
        metavar="FILE",
        help="also write the table as JSON (build/bench.json)",
    )
    return made


def measure_group(group: str, options: BenchmarkOptions, rows: list[BenchmarkRow], slowness: dict[str, float]) -> bool:
    """Add the group's rows, as far as it gets, and how slow the machine was, by which their goals and floors are scaled.

    Returns false if it fails, which does not stop the other groups.
    """
    sys.stderr.write(f"measuring {group}\n")
    before, first = measure_slowness(), len(rows)
    try:
        measured = cast(
            "Callable[[BenchmarkOptions], Iterator[BenchmarkRow]]", import_module(MODULES[group]).measure_rows
        )  # each has one
        rows.extend(measured(options))
    except Exception:
        # The top of this group: the exit code reports the failure.
        log.exception("benchmark group failed group=%s", group)
        return False
    finally:
        slowness[group] = (before + measure_slowness()) / 2
        rows[first:] = [scale_row(row, slowness[group]) for row in rows[first:]]
    return True


def _write_report(file: Path, facts: dict[str, str], rows: Sequence[BenchmarkRow], wrong: Sequence[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    told = [{**asdict(row), "verdict": row.verdict} for row in rows]
    file.write_text(json.dumps({"machine": facts, "rows": told, "complaints": wrong}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
