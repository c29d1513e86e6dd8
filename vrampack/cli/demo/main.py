"""`vrampack demo`: its flags, and what it starts, in which order."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from vrampack.cards.units import DEFAULT_UNIT_MIB
from vrampack.cli.arguments import CommandParser, parse_number_between
from vrampack.cli.demo import objects
from vrampack.cli.demo.extender_process import (
    ExtenderStartError,
    build_scheduler_settings,
    find_free_addresses,
    run_extender,
)
from vrampack.cli.demo.report import ClusterAccess, build_document, format_access
from vrampack.cli.demo.scenario import DemoScenario, ScenarioError, run_first_part, run_mixed_part
from vrampack.cli.output import OutputError, write_output
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.embedded_cluster import run_embedded_cluster
from vrampack.simulator.kubeconfig import write_kubeconfig

MAX_REPLICAS = 200
MAX_CARD_MIB = 1024 * 1024
SIGNALLED_EXIT_CODE = 128
"""Shells add this to the number of the signal that ended a program."""


def main(arguments: Sequence[str]) -> int:
    """Run the demo; returns the exit code, 0 when every step succeeded. Raises `OutputError`."""
    options = build_parser().parse_args(arguments)
    stop_signals: list[int] = []
    errors: list[Exception] = []
    try:
        asyncio.run(_run(options, stop_signals))
    except* asyncio.CancelledError:
        sys.stderr.write("vrampack demo: interrupted; everything it started is stopped\n")
    except* (OutputError, ExtenderStartError, ScenarioError, OSError) as group:
        errors += _flatten_errors(group)
    for error in errors:
        if isinstance(error, OutputError):
            raise error
        sys.stderr.write(f"vrampack demo: {error}\n")
    return SIGNALLED_EXIT_CODE + stop_signals[0] if stop_signals else bool(errors)


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(
        prog="vrampack demo",
        description="Pods share a card on a cluster inside this process; the extender is the real program, called over "
        "HTTP. Needs no cluster, no GPU and no root. With your own numbers, --json or --serve only the first part runs.",
    )
    made.add_argument("--replicas", type=parse_number_between(1, MAX_REPLICAS), metavar="R", help="pods of the app (2)")
    made.add_argument(
        "--gpu-mem", type=parse_number_between(1, 1024), metavar="U", help="units that each of them asks for (4)"
    )
    made.add_argument(
        "--card-mib",
        type=parse_number_between(DEFAULT_UNIT_MIB, MAX_CARD_MIB),
        metavar="M",
        help="memory of the card in MiB; it has one unit for each whole GiB (16130: 15 units)",
    )
    made.add_argument("--json", action="store_true", help="print the steps as one JSON document")
    made.add_argument(
        "--serve",
        action="store_true",
        help="stop when a pod is waiting, keep the cluster up, print how kubectl reaches it",
    )
    return made


async def _run(options: argparse.Namespace, stop_signals: list[int]) -> None:
    """Run the demo; adds a signal that cancels it to `stop_signals`."""
    task = asyncio.current_task()

    def cancel(number: int) -> None:
        stop_signals.append(number)
        if task is not None:
            task.cancel()

    _call_on_signal(cancel)
    is_first_only = any((options.json, options.serve, options.replicas, options.gpu_mem, options.card_mib))
    card = objects.CardModel(objects.V100_MODEL, options.card_mib or objects.V100_MIB)
    app = objects.DemoWorkload(objects.APP_NAME, options.replicas or 2, options.gpu_mem or 4)
    say = _discard if options.json else _print
    async with _run_cluster() as (api, access):
        story = DemoScenario(api, access, say)
        stages = await run_first_part(story, card, app, stops_when_full=options.serve)
        if not is_first_only:
            await run_mixed_part(story)
        if options.json:
            _print(json.dumps(build_document(access, card, app, stages), indent=2))
        if options.serve:
            say(format_access(access))
            await _wait_for_interrupt()


@asynccontextmanager
async def _run_cluster() -> AsyncIterator[tuple[ApiServer, ClusterAccess]]:
    """The embedded cluster and the extender."""
    addresses = find_free_addresses()
    with tempfile.TemporaryDirectory(prefix="vrampack-demo-") as folder:
        async with run_embedded_cluster(build_scheduler_settings(addresses.url_prefix)) as api:
            kubeconfig = write_kubeconfig(Path(folder), api.url)
            async with run_extender(addresses, kubeconfig, Path(folder)):
                yield api, ClusterAccess(api.url, addresses.url_prefix, f"{addresses.health_url}/metrics", kubeconfig)


def _flatten_errors(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """The single errors in nested exception groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flatten_errors(error)
        else:
            yield error


async def _wait_for_interrupt() -> None:
    """Wait for Ctrl-C or SIGTERM, the normal way to end here."""
    stopped = asyncio.Event()
    _call_on_signal(lambda _: stopped.set())
    await stopped.wait()


def _call_on_signal(act: Callable[[int], object]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, act, number)


def _print(text: str) -> None:
    """Print at once, also into a pipe: a program reads the JSON while the cluster stays up."""
    write_output(text + "\n")


def _discard(_: str) -> None:
    """Drop text: with --json only the document is printed."""
