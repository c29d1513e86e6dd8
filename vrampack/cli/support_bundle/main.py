"""`vrampack support-bundle`: writes one file to send to maintainers with a request for help."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from extender.settings import load_settings
from vrampack.cli.arguments import CommandParser, parse_input_file, parse_node_name
from vrampack.cli.cluster_command import add_cluster_flags, open_api, run_cluster_command
from vrampack.cli.output import write_output
from vrampack.cli.support_bundle.bundle_file import SupportBundle
from vrampack.cli.support_bundle.bundle_reader import BundleReader
from vrampack.cli.support_bundle.collection import BundleCollector
from vrampack.kube.diagnostic_client import DiagnosticApi
from vrampack.kube.errors import RefusedError

OWN_NAMESPACE = "vrampack-system"


def main(arguments: Sequence[str]) -> int:
    """Write one bundle; returns the exit code: 0 written, even if parts are missing, 1 nothing written, 2 misuse."""
    options = build_parser().parse_args(arguments)
    return run_cluster_command(lambda: _run(options))


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(
        prog="vrampack support-bundle",
        description="Collect what a maintainer needs to help into one file, without secrets. Only reads the cluster.",
        epilog="Exit 0: written; its manifest names what is missing; 1: not written; 2: misuse.",
    )
    made.add_argument(
        "--output", type=Path, metavar="FILE.tar.gz", help="the file to write (default: vrampack-support-TIME.tar.gz)"
    )
    made.add_argument(
        "--namespace",
        default=OWN_NAMESPACE,
        metavar="NAME",
        help=f"the namespace of vrampack's own pods ({OWN_NAMESPACE})",
    )
    made.add_argument(
        "--node",
        action="append",
        type=parse_node_name,
        metavar="NODE",
        help="collect the logs of its agent first; may be given several times",
    )
    made.add_argument(
        "--config",
        type=parse_input_file,
        metavar="FILE",
        help="the extender's configuration (default: the one in the cluster)",
    )
    add_cluster_flags(made)
    return made


def _run(options: argparse.Namespace) -> None:
    created = datetime.now(UTC)
    path = options.output or Path(f"vrampack-support-{created:%Y%m%dT%H%M%SZ}.tar.gz")
    bundle = SupportBundle(created)
    asyncio.run(_collect(options, bundle))
    bundle.write_archive(path)
    sys.stderr.write("".join(f"vrampack: {line}\n" for line in _describe_gaps(bundle)))
    write_output(f"{path}: {bundle.file_count} files, {_format_size(path.stat().st_size)}\n")


async def _collect(options: argparse.Namespace, bundle: SupportBundle) -> None:
    settings = load_settings(options.config) if options.config else None
    async with open_api(DiagnosticApi, options, "support-bundle") as api:
        reader = BundleReader(api, options.namespace)
        await _require_answer(reader)
        await BundleCollector(reader, bundle, settings, frozenset(options.node or ())).collect_all()


async def _require_answer(reader: BundleReader) -> None:
    """Fail early instead of letting every part wait for an unreachable server. Raises `NoAnswerError`."""
    try:
        await reader.read_version()
    except RefusedError:
        return


def _describe_gaps(bundle: SupportBundle) -> list[str]:
    lines = [f"{each.name}: not collected: {each.problem}" for each in bundle.reports if each.problem]
    return lines + [f"{each.name}: {note}" for each in bundle.reports for note in each.notes]


def _format_size(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size / (1 << 10):.0f} KiB"
