"""`vrampack`: runs the command that was asked for. Exit 0: success, 1: failure, 2: misuse.

Each command is a module with `main(arguments)`, imported only when needed: `inspect` must not wait for the web framework
that `serve` needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from vrampack.cli.arguments import find_near_name
from vrampack.cli.output import run_command, write_output
from vrampack.cli.version import VERSION

COMMANDS = {
    "admission": ("vrampack.cli.admission", "run the webhook that API servers before 1.36 call"),
    "agent": ("vrampack.cli.agent", "run the agent of a GPU node"),
    "card": ("vrampack.cli.card.main", "take one card of a node out of use, or put it back"),
    "certificates": ("vrampack.cli.certificates.main", "make or renew the certificate of the admission webhook"),
    "completion": ("vrampack.cli.completion", "print a script that makes bash or zsh complete commands and flags"),
    "config": ("vrampack.cli.config.main", "check a configuration file, or print its JSON Schema"),
    "demo": ("vrampack.cli.demo.main", "show the product at work on a cluster in this process; needs nothing"),
    "explain": ("vrampack.cli.explain.main", "say why a pod is pending, node by node and card by card"),
    "inspect": ("vrampack.cli.inspect_direct", "show who holds how much of which card"),
    "limits": ("vrampack.cli.limits.main", "show who holds what on this node's cards, process by process"),
    "policy": ("vrampack.cli.policy.main", "show the policy and rules in force, or how they decide about a pod"),
    "serve": ("vrampack.cli.serve", "run the extender that kube-scheduler calls"),
    "simulate": (
        "vrampack.cli.simulate.main",
        "measure how tightly policies pack, on a trace or on a cluster's snapshot",
    ),
    "snapshot": ("vrampack.cli.snapshot", "write what the packing of a cluster depends on into one file"),
    "support-bundle": (
        "vrampack.cli.support_bundle.main",
        "write what a maintainer needs to help into one file, without secrets",
    ),
    "ui": ("vrampack.cli.ui.main", "show the cluster, pending pods and simulations in a browser on this machine"),
}
"""By name: the module, and one line of help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given[0] if given else ""
    return run_command(lambda: _run(name, given[1:]), prog=f"vrampack {name}" if name in COMMANDS else "vrampack")


def _run(name: str, arguments: Sequence[str]) -> int:
    if name in COMMANDS:
        module, _ = COMMANDS[name]
        try:
            imported = import_module(module)
        except ModuleNotFoundError as error:
            if name != "agent":
                raise
            sys.stderr.write(
                f"vrampack agent: there is no {error.name} here: the extender's image has no agent in it\n"
            )
            return 1
        run = cast("Callable[[Sequence[str]], int]", imported.main)  # each module of the table has one
        return run(arguments)
    if name in ("version", "--version"):
        write_output(f"vrampack {VERSION}\n")
        return 0
    if name in ("help", "-h", "--help"):
        write_output(_format_help())
        return 0
    near = find_near_name(name, [*COMMANDS, "version", "help"])
    if near:
        sys.stderr.write(f"vrampack: there is no command {name!r}; did you mean {near[0]}? `vrampack help` lists all\n")
        return 2
    problem = f"there is no command {name!r}" if name else "which command?"
    sys.stderr.write(f"vrampack: {problem}\n\n{_format_help()}")
    return 2


def _format_help() -> str:
    table = {**{name: text for name, (_, text) in COMMANDS.items()}, "version": "print the version"}
    lines = [f"  {name:<16}{text}" for name, text in table.items()]
    return "\n".join(
        [
            "vrampack packs pods onto GPU cards by memory.",
            "",
            "usage: vrampack COMMAND [options]",
            "",
            *lines,
            "",
            "`vrampack COMMAND --help` has the options of a command.",
            "",
        ]
    )
