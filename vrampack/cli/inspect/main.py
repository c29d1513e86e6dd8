"""The command: what was asked for, read through a `Source`, printed. Exit 0 is fine, 1 is no, 2 is misuse.

    kubectl inspect cgpu [-d] [-o json|yaml|wide] [node ...]

Results go to stdout and all else to stderr; colour marks trouble, on a terminal only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from vrampack.cli.inspect import kubectl
from vrampack.cli.inspect.errors import ReadError
from vrampack.cli.inspect.forms import as_json, as_yaml
from vrampack.cli.inspect.gather import Cluster, Reader, gather, select
from vrampack.cli.inspect.render import details, summary, wide
from vrampack.cli.inspect.tables import painted

INTERRUPTED = 130
"""What shells make of Ctrl-C."""

USAGE = "%(prog)s [-d | -o json|yaml|wide] [options] [node ...]"
DESCRIPTION = "Shows the GPU cards of every node and who holds how much of them. Only reads nodes and pods."
EPILOG = (
    "Pods of every namespace hold memory, so there is no -n: sums over one namespace would be wrong. "
    "Exit codes: 0 fine, 1 no, 2 misuse."
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the cluster is read: the flags that choose it, and how it is opened."""

    add_flags: Callable[[argparse.ArgumentParser], None]
    open: Callable[[argparse.Namespace], AbstractContextManager[Reader]]


THROUGH_KUBECTL = Source(kubectl.add_flags, lambda options: nullcontext(kubectl.KubectlReader(options.kubectl)))


def run(arguments: Sequence[str], *, prog: str, version: str, source: Source = THROUGH_KUBECTL) -> int:
    """Do what the arguments say; returns the exit code. Misuse and --help raise `SystemExit`, as argparse does."""
    options = parser(prog, version, source).parse_intermixed_args(arguments)
    try:
        with source.open(options) as reader:
            cluster = gather(reader, unit_mib=options.unit_mib)
    except ReadError as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    missing = _missing(cluster, options.nodes)
    shown = select(cluster, options.nodes) if options.nodes else cluster
    if shown.nodes or not missing or options.output in ("json", "yaml"):
        _write(_rendered(shown, options))
    for text in missing:
        sys.stderr.write(f"{prog}: {text}\n")
    return 1 if missing else 0


def parser(prog: str, version: str, source: Source) -> argparse.ArgumentParser:
    """Every flag of the command."""
    made = argparse.ArgumentParser(prog=prog, usage=USAGE, description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False)
    made.add_argument("nodes", nargs="*", metavar="node", help="only these nodes; the sums stay the cluster's")
    form = made.add_mutually_exclusive_group()
    form.add_argument("-d", "--details", action="store_true", help="every pod that holds memory, node by node")
    form.add_argument(
        "-o", "--output", choices=("json", "yaml", "wide"), help="wide: one line per card; json, yaml: for programs"
    )
    made.add_argument(
        "--unit-mib", type=_unit, metavar="MIB", help="the cluster's unit; what most nodes publish without it, or 1024"
    )
    made.add_argument("-A", "--all-namespaces", action="store_true", help="always so; accepted out of habit")
    made.add_argument("-n", "--namespace", action=_RefuseNamespace, help=argparse.SUPPRESS)
    made.add_argument("--version", action="version", version=f"{prog} {version}")
    source.add_flags(made)
    return made


class _RefuseNamespace(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.error("there is no -n: pods of every namespace hold memory, and sums over one would be wrong")


def _unit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of MiB")
    return int(text)


def _missing(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """What is to be said of named nodes that cannot be shown."""
    shown = {view.node.name for view in cluster.nodes}
    return [
        f"node {name} has no GPU memory to share" if name in cluster.bare else f"node {name} not found"
        for name in dict.fromkeys(names)
        if name not in shown
    ]


def _rendered(cluster: Cluster, options: argparse.Namespace) -> str:
    forms: dict[str | None, Callable[[Cluster], str]] = {"json": as_json, "yaml": as_yaml, "wide": wide}
    if options.output in ("json", "yaml"):
        return forms[options.output](cluster)
    text = forms.get(options.output, details if options.details else summary)(cluster)
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return painted(text) if is_coloured else text


def _write(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads has seen enough (`| head`). The interpreter would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
