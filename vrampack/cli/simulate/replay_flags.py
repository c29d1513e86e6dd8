"""The flags of `vrampack simulate replay`, and the parsers of their values."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from vrampack.cards.units import MAX_UNITS
from vrampack.cli.arguments import CommandParser, parse_input_file
from vrampack.simulator.replay.node_changes import MAX_COPIES, CardExchange, NodeAddition
from vrampack.simulator.replay.replay import MixKnowledge

OWN = "own"


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(
        prog="vrampack simulate replay",
        description="Place the pods of a snapshot again: under other policies, on other nodes, or beside other arrivals.",
        epilog="Exit 0: done; 1: the snapshot cannot be used; 2: misuse. Nodes are first added, then get other cards, then are removed.",
    )
    made.add_argument(
        "snapshot",
        type=parse_input_file,
        metavar="SNAPSHOT",
        help="a file of `vrampack snapshot` or `kubectl get -o yaml`",
    )
    made.add_argument(
        "--policy",
        action="append",
        metavar="NAME|FILE",
        help="a policy, a preset, or a file with profiles and rules; may be given several times (that of --config)",
    )
    made.add_argument(
        "--config", type=parse_input_file, metavar="FILE", help="the extender's ExtenderConfiguration, if it has one"
    )
    made.add_argument(
        "--keep", action="store_true", help="keep bound pods where they are; place only waiting and arriving ones"
    )
    made.add_argument(
        "--arrivals",
        default=OWN,
        metavar="own|FILE",
        help="`own`: the snapshot's pods; or a CSV file with pod,arrival,lifetime,gpu_mem_gib (own)",
    )
    made.add_argument(
        "--add-nodes", action="append", type=parse_addition, metavar="NODE=N", help="add N empty copies of a node"
    )
    made.add_argument(
        "--remove-nodes",
        action="append",
        type=parse_names,
        metavar="NODE,..",
        help="remove nodes by names or patterns with *",
    )
    made.add_argument(
        "--model",
        action="append",
        type=parse_exchange,
        metavar="NODE=MODEL:UNITS",
        help="give nodes of this name or pattern cards of another model and size",
    )
    made.add_argument(
        "--mix", choices=get_args(MixKnowledge), default="given", help="what policies know about the pods (given)"
    )
    made.add_argument("--explain", metavar="[NAMESPACE/]POD", help="show how this pod's node was chosen, term by term")
    made.add_argument("--json", action="store_true", help="one JSON object for each policy")
    made.add_argument("--report", type=Path, metavar="FILE", help="write curves and the table as one HTML file")
    return made


def parse_addition(text: str) -> NodeAddition:
    """`gpu-1=3`. Raises `ArgumentTypeError`."""
    name, _, count = text.partition("=")
    if not name or not (count.isascii() and count.isdecimal()) or not 1 <= int(count) <= MAX_COPIES:
        raise argparse.ArgumentTypeError(f"found {text!r}; give a node and a number from 1 to {MAX_COPIES}, as gpu-1=3")
    return NodeAddition(name, int(count))


def parse_names(text: str) -> list[str]:
    """`gpu-1,old-*`. Raises `ArgumentTypeError`."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"found {text!r}; give names or patterns of nodes, as gpu-1,old-*")
    return names


def parse_exchange(text: str) -> CardExchange:
    """`gpu-*=A100:80`. Raises `ArgumentTypeError`."""
    pattern, _, card = text.partition("=")
    model, _, units = card.rpartition(":")
    is_number = units.isascii() and units.isdecimal() and 1 <= int(units) <= MAX_UNITS
    if not pattern or not model or not is_number:
        raise argparse.ArgumentTypeError(f"found {text!r}; give nodes, model and units of a card, as gpu-*=A100:80")
    return CardExchange(pattern, model, int(units))
