"""`vrampack simulate openb|cards`: how tightly policies pack, measured with the extender's ledger, engine and policies.

`vrampack simulate replay` is in `replay.py`. Tables go to stdout when everything is measured; with `--json` each row is printed
as one JSON object on its own line as soon as its runs have ended.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from pathlib import Path
from typing import TypeVar, get_args

from extender.policy_file import names_policy_file
from extender.settings import load_settings
from policies.registry import POLICIES
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.cli.arguments import CommandParser, parse_number_between
from vrampack.cli.errors import describe_error, report_error
from vrampack.cli.inspect.text_columns import align_columns
from vrampack.cli.named_policy import load_named_policy
from vrampack.cli.output import write_output
from vrampack.cli.simulate import replay
from vrampack.cli.simulate.progress import ProgressBar
from vrampack.cli.simulate.report import Chart, ReportTable, render_report
from vrampack.config.errors import SettingsError
from vrampack.simulator.packing.measurement import (
    FOLLOWED_BY,
    POLICY_NAMES,
    CardRun,
    CardTest,
    MixMode,
    OpenbRun,
    Through,
    average_results,
    map_runs,
    measure_cards,
    measure_openb,
)
from vrampack.simulator.packing.openb_protocol import READ_AT
from vrampack.simulator.packing.trace_files import OPENB_TRACES

DATA = Path(__file__).parents[3] / "benchmarks" / "data"
"""The folder in a checkout; the wheel has no traces."""
CLUSTERS = ("mixed", "small16")
MIXES = ("inference", "awkward", "openb16", "uniform")
MAX_JOBS = 1024
FIGURES = ("PLACED", "ALLOC", "DENSITY", "STRANDED", "REPACK", "WAIT")
"""Names for the fields of `CardMeasures`, in their order."""

Run = TypeVar("Run", OpenbRun, CardRun)
Result = TypeVar("Result")
Key = TypeVar("Key")


def main(arguments: Sequence[str]) -> int:
    """Run the named benchmark or the replay; returns the exit code."""
    if arguments[:1] == ["replay"]:
        return replay.main(arguments[1:])
    options = build_parser().parse_args(arguments)
    options.arguments = arguments
    folder = options.data / options.benchmark
    if not os.path.isdir(folder):  # noqa: PTH112 - pathlib's raises where a name is too long
        return report_error(f"there is no folder {folder}: give --data, the folder benchmarks/data of a checkout", 2)
    try:
        return _simulate_openb(options) if options.benchmark == "openb" else _simulate_cards(options)
    except OSError as error:
        return report_error(describe_error(error), 1)


def build_parser() -> CommandParser:
    """The flags of both benchmarks; those that only one takes say so."""
    made = CommandParser(
        prog="vrampack simulate",
        description="Measure how tightly policies pack.",
        epilog="A cluster's own pods: vrampack simulate replay --help.",
    )
    made.add_argument(
        "benchmark", choices=("openb", "cards"), help="the FGD study's protocol, or GiB requests with departures"
    )
    made.add_argument(
        "--policy",
        action="append",
        type=parse_policy,
        metavar="NAME|FILE",
        help="a policy, or a file whose default policy, weights and bounds are used; may be given several times",
    )
    made.add_argument(
        "--mix", choices=get_args(MixMode), default="given", help="what policies know about the mix of requests (given)"
    )
    made.add_argument(
        "--seeds", type=parse_seeds, default=range(42, 45), metavar="A-B", help="the seeds to run with (42-44)"
    )
    made.add_argument(
        "--jobs",
        type=parse_number_between(1, MAX_JOBS),
        default=1,
        metavar="N",
        help="how many processes run at a time (1)",
    )
    made.add_argument("--json", action="store_true", help="print one JSON object for each row")
    made.add_argument("--report", type=Path, metavar="FILE", help="write curves and the table as one HTML file")
    made.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="the folder benchmarks/data of a checkout")
    made.add_argument(
        "--trace",
        action="append",
        type=parse_trace,
        metavar="NAME",
        help=f"openb: all, {', '.join(OPENB_TRACES)}, or ONE+ANOTHER; may be given several times (default)",
    )
    made.add_argument(
        "--through",
        choices=get_args(Through),
        default="engine",
        help="openb: what places pods. engine: the policy; scheduler: the same, but kube-scheduler's plug-ins place pods without "
        "cards; http: as scheduler, but the extender is called over HTTP (engine)",
    )
    made.add_argument("--test", action="append", choices=get_args(CardTest), help="cards: which test (both)")
    made.add_argument("--cluster", action="append", choices=CLUSTERS, help="cards: which cluster (both)")
    made.add_argument(
        "--requests", action="append", choices=MIXES, help="cards: the mix of request sizes (inference and awkward)"
    )
    made.add_argument(
        "--queue", action="store_true", help="cards: pods that do not fit in a churn wait instead of being lost"
    )
    made.add_argument(
        "--load",
        type=_parse_load,
        default=0.7,
        help="cards: the load of a churn, as a share of the cluster's memory (0.7)",
    )
    return made


def parse_policy(text: str) -> TunedPolicy:
    """A policy by its name, or a file's default policy with its weights and bounds. Raises `ArgumentTypeError`."""
    if text in POLICY_NAMES:
        return TunedPolicy(text)
    if not names_policy_file(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a file nor one of {', '.join(POLICY_NAMES)}")
    try:
        return load_named_policy(text, load_settings(None)).settings.policy.tuned_default
    except SettingsError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_trace(text: str) -> str:
    """`all`, a trace, or several joined by `+`, whose pods arrive one trace after another. Raises `ArgumentTypeError`."""
    for name in text.split(FOLLOWED_BY):
        if name not in OPENB_TRACES and text != "all":
            raise argparse.ArgumentTypeError(f"{name!r} is none of all, {', '.join(OPENB_TRACES)}")
    return text


def parse_seeds(text: str) -> range:
    """`42-51` or `42`. Raises `ArgumentTypeError`."""
    first, _, last = text.partition("-")
    try:
        seeds = range(int(first), int(last or first) + 1)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of seeds; give one as 42-51") from error
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} is empty; give one as 42-51")
    return seeds


def _parse_load(text: str) -> float:
    try:
        load = float(text)
    except ValueError:
        load = 0.0
    if not 0 < load <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share above 0 and up to 1")
    return load


def _simulate_openb(options: argparse.Namespace) -> int:
    if options.through == "http":
        options.mix = "learned"  # as a running extender does
        if wrong := [policy.name for policy in _list_policies(options) if policy.name not in POLICIES]:
            return report_error(
                f"--through http takes policies that a configuration can name, not {', '.join(wrong)}", 2
            )
    traces = options.trace or ["default"]
    traces = OPENB_TRACES if "all" in traces else traces
    rows = [
        (
            (trace, policy),
            [OpenbRun(options.data, trace, policy, options.mix, seed, options.through) for seed in options.seeds],
        )
        for trace, policy in product(traces, _list_policies(options))
    ]
    table, curves = [], dict[str, dict[str, list[tuple[float, float]]]]()
    for (trace, policy), results in _measure_rows(measure_openb, rows, options.jobs):
        curve = average_results(list(results.values()))
        curves.setdefault(trace, {})[policy.label] = [(float(at), value) for at, value in curve.items()]
        per_seed = {run.seed: _select_published(result) for run, result in results.items()}
        allocation = average_results(list(per_seed.values()))
        if options.json:
            _write_json(
                trace=trace,
                policy=policy.label,
                seeds=list(options.seeds),
                mix=options.mix,
                through=options.through,
                allocation=allocation,
                per_seed=per_seed,
            )
        table.append((trace, policy.label, *(f"{allocation[str(at)]:.2f}" for at in READ_AT)))
    heading = ("TRACE", "POLICY", *(f"@{at}" for at in READ_AT))
    charts = [Chart(f"{trace}", "asked for, % of the cards", "allocated, %", lines) for trace, lines in curves.items()]
    _write_report(options, charts, ReportTable(heading, table, first_number=2))
    if not options.json:
        write_output(align_columns([heading, *table], right_columns={2, 3, 4}))
    return 0


def _simulate_cards(options: argparse.Namespace) -> int:
    settings = product(
        options.test or get_args(CardTest),
        options.cluster or CLUSTERS,
        options.requests or MIXES[:2],
        _list_policies(options),
    )
    rows = [
        (
            (test, cluster, requests, policy),
            [
                CardRun(options.data, test, cluster, requests, policy, options.mix, seed, options.load, options.queue)
                for seed in options.seeds
            ],
        )
        for test, cluster, requests, policy in settings
    ]
    table = []
    for (test, cluster, requests, policy), results in _measure_rows(measure_cards, rows, options.jobs):
        for load in next(iter(results.values())):
            measures = average_results([result[load] for result in results.values()])
            if options.json:
                _write_json(
                    test=test,
                    cluster=cluster,
                    mix=requests,
                    policy=policy.label,
                    load=float(load),
                    seeds=list(options.seeds),
                    knows=options.mix,
                    **measures,
                )
            figures = (f"{value:.2f}" for value in measures.values())
            table.append((test, cluster, requests, load, policy.label, *figures))
    heading = (*("TEST", "CLUSTER", "REQUESTS", "LOAD", "POLICY"), *FIGURES)
    _write_report(options, [], ReportTable(heading, table, first_number=5))
    if not options.json:
        write_output(align_columns([heading, *table], right_columns=range(5, 5 + len(FIGURES))))
    return 0


def _list_policies(options: argparse.Namespace) -> list[TunedPolicy]:
    return options.policy or [TunedPolicy("tessellate")]


def _measure_rows(
    measure: Callable[[Run], Result], rows: Sequence[tuple[Key, Sequence[Run]]], jobs: int
) -> Iterator[tuple[Key, dict[Run, Result]]]:
    """The results of each row as soon as its runs have ended, with a progress bar on stderr if that is a terminal."""
    measured = map_runs(measure, [run for _, runs in rows for run in runs], jobs)
    with ProgressBar(sum(len(runs) for _, runs in rows)) as progress:
        for key, runs in rows:
            results: dict[Run, Result] = {}
            for run, result in islice(measured, len(runs)):
                results[run] = result
                progress.count_run(f"{run.policy.label} seed {run.seed}")
            progress.wipe_line()
            yield key, results


def _select_published(result: dict[str, float]) -> dict[str, float]:
    return {str(at): result[str(at)] for at in READ_AT}


def _write_report(options: argparse.Namespace, charts: Sequence[Chart], table: ReportTable) -> None:
    if options.report is not None:
        title = f"vrampack simulate {options.benchmark}"
        command = shlex.join(["vrampack", "simulate", *options.arguments])
        options.report.write_text(render_report(title, command, charts, table), encoding="utf-8")


def _write_json(**row: object) -> None:
    write_output(json.dumps(row) + "\n")
