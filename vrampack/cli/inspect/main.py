"""The command: reads the cluster through a `ClusterSource` and prints it. Exit 0: success, 1: failure, 2: misuse.

    kubectl inspect cgpu [-d] [-o json|yaml|wide] [node ...]

Results go to stdout and everything else to stderr; colour marks problems, only on a terminal.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from vrampack.cards.node_annotations import MAX_MEMORY_MIB
from vrampack.cli.arguments import CommandParser, parse_node_name, parse_number_between
from vrampack.cli.inspect import kubectl_reader
from vrampack.cli.inspect.api_objects import NamespacePod
from vrampack.cli.inspect.cluster import InspectedCluster, OwnPodReader, inspect_cluster, select_nodes
from vrampack.cli.inspect.errors import ForbiddenListError, ReadError
from vrampack.cli.inspect.own_pods import format_own_pods, list_own_pods
from vrampack.cli.inspect.schema import format_json, format_yaml
from vrampack.cli.inspect.table_views import format_details, format_summary, format_wide
from vrampack.cli.inspect.text_columns import color_problems
from vrampack.cli.output import find_terminal_width, run_command, write_output

USAGE = "%(prog)s [-d | -o json|yaml|wide] [options] [node ...]"
DESCRIPTION = "Shows the GPU cards of every node and who holds how much of them. Only reads nodes and pods."
EPILOG = (
    "Pods of every namespace hold memory, so there is no -n: sums over one namespace would be wrong. "
    "Exit codes: 0 success, 1 failure, 2 misuse."
)


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """A way to read the cluster: the flags that choose it, and the function that opens it."""

    add_flags: Callable[[argparse.ArgumentParser], None]
    open_reader: Callable[[argparse.Namespace], AbstractContextManager[OwnPodReader]]


KUBECTL_SOURCE = ClusterSource(
    kubectl_reader.add_kubectl_flags, lambda options: nullcontext(kubectl_reader.KubectlReader(options.kubectl))
)


def run_as_plugin(version: str) -> int:
    """Run the command as a kubectl plugin, named after the file that was started."""
    called = Path(sys.argv[0]).name
    prog = called.replace("-", " ") if called.startswith("kubectl-") else called
    return run_command(lambda: run(sys.argv[1:], prog=prog, version=version), prog=prog)


def run(arguments: Sequence[str], *, prog: str, version: str, source: ClusterSource = KUBECTL_SOURCE) -> int:
    """Run the command; returns the exit code. Misuse and --help raise `SystemExit`, as argparse does.

    Raises `OutputError`.
    """
    options = build_parser(prog, version, source).parse_intermixed_args(arguments)
    try:
        with source.open_reader(options) as reader:
            try:
                cluster = inspect_cluster(reader, unit_mib=options.unit_mib)
            except ForbiddenListError as error:
                pods, notes = _list_own_pods(reader, error)
                write_output(format_own_pods(pods, options.output, max_width=find_terminal_width()))
                for note in notes:
                    sys.stderr.write(f"{prog}: {note}\n")
                sys.stderr.write(f"{prog}: {error}; these are the pods of your own namespace\n")
                return 0
    except ReadError as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return 1
    missing = _describe_missing_nodes(cluster, options.nodes)
    shown = select_nodes(cluster, options.nodes) if options.nodes else cluster
    if shown.nodes or not missing or options.output in ("json", "yaml"):
        write_output(_format_output(shown, options))
    for text in missing:
        sys.stderr.write(f"{prog}: {text}\n")
    return 1 if missing else 0


def build_parser(prog: str, version: str, source: ClusterSource) -> CommandParser:
    """Every flag of the command."""
    made = CommandParser(prog=prog, usage=USAGE, description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False)
    made.add_argument(
        "nodes", nargs="*", type=parse_node_name, metavar="node", help="only these nodes; the sums stay the cluster's"
    )
    form = made.add_mutually_exclusive_group()
    form.add_argument("-d", "--details", action="store_true", help="every pod that holds memory, node by node")
    form.add_argument(
        "-o", "--output", choices=("json", "yaml", "wide"), help="wide: one line per card; json, yaml: for programs"
    )
    made.add_argument(
        "--unit-mib",
        type=parse_number_between(1, MAX_MEMORY_MIB),
        metavar="MIB",
        help="the cluster's unit (default: what most nodes publish, or 1024)",
    )
    made.add_argument(
        "-A", "--all-namespaces", action="store_true", help="always in effect; accepted for compatibility"
    )
    made.add_argument("-n", "--namespace", action=_RefuseNamespace, help=argparse.SUPPRESS)
    made.add_argument("--version", action="version", version=f"{prog} {version}")
    source.add_flags(made)
    return made


class _RefuseNamespace(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.error("there is no -n: pods of every namespace hold memory, and sums over one would be wrong")


def _describe_missing_nodes(cluster: InspectedCluster, names: Sequence[str]) -> list[str]:
    """A line for each named node that cannot be shown."""
    shown = {view.node.name for view in cluster.nodes}
    return [
        f"node {name} has no GPU memory to share" if name in cluster.nodes_without_memory else f"node {name} not found"
        for name in dict.fromkeys(names)
        if name not in shown
    ]


def _list_own_pods(reader: OwnPodReader, error: ForbiddenListError) -> tuple[list[NamespacePod], list[str]]:
    """Raises the first `error` if the user may not list these either."""
    try:
        return list_own_pods(reader.read_own_pods())
    except ForbiddenListError:
        raise error from None


def _format_output(cluster: InspectedCluster, options: argparse.Namespace) -> str:
    if options.output in ("json", "yaml"):
        return format_json(cluster) if options.output == "json" else format_yaml(cluster)
    format_cards = format_wide if options.output == "wide" else format_summary
    text = format_details(cluster) if options.details else format_cards(cluster, max_width=find_terminal_width())
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return color_problems(text) if is_coloured else text
