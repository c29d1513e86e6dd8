"""`vrampack limits`: who holds what of this node's cards, asked of its agent; and the kernel module off the driver, and back.

`detach` and `attach` speak to the module itself, so that a driver can be exchanged while no agent runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

import msgspec

from vrampack.agent.limits.kmod.errors import ModuleError
from vrampack.agent.limits.kmod.nodes import NOT_LOADED, KmodClient
from vrampack.agent.shown import LimitsStatus
from vrampack.cli.refusal import refuse
from vrampack.cli.shim.render import open_files, table
from vrampack.config.addresses import parse_address

CALL_SECONDS = 10.0
MOST_BYTES = 16 << 20
"""Some 50,000 processes; an answer above this is no agent's."""


class NoStatusError(Exception):
    """Whoever listens there is no agent that can say it."""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 answered or done, 1 no answer or not done, 2 misuse."""
    made = parser()
    options = made.parse_args(arguments)
    if options.action != "status":
        return command(options.action, KmodClient())
    try:
        host, port = parse_address(options.address)
    except ValueError as error:
        made.error(f"--address: {error}")
    try:
        status = msgspec.json.decode(_asked(host, port), type=LimitsStatus)
    except (NoStatusError, HTTPException, OSError, msgspec.DecodeError) as error:
        hint = "is it the health address of an agent of this version?"
        return refuse(f"no answer from an agent at {options.address}: {error}; {hint}", 1)
    sys.stdout.write(_as_json(status) if options.output == "json" else table(status))
    return 0


def command(action: str, nodes: KmodClient) -> int:
    """Tell the module of this node; `detach` is done, and yet 1, while files are open that keep the driver loaded."""
    try:
        if nodes.read_state() is None:
            return refuse(NOT_LOADED, 1)
        (nodes.detach if action == "detach" else nodes.attach)()
        state = nodes.read_state()
        instances = nodes.list_budgets()
    except ModuleError as error:
        return refuse(str(error), 1)
    if action == "detach" and state is not None and state.files:
        return refuse(f"detached, but the driver cannot be unloaded yet: {open_files(state.files, instances)}", 1)
    sys.stdout.write(f"{action}ed\n")
    return 0


def parser() -> argparse.ArgumentParser:
    """The flags of this command."""
    made = argparse.ArgumentParser(
        prog="vrampack limits",
        description=(
            "Show who holds what of this node's cards, where kernel module (kmod) or library (preload) hold limits; "
            "take the module off the driver, before the driver is unloaded, and put it back. Both as root on the node."
        ),
        epilog="Exit 0: answered, or done; 1: no agent answers there, or not done; 2: misuse.",
    )
    made.add_argument("action", choices=("status", "detach", "attach"))
    made.add_argument(
        "--address",
        metavar="HOST:PORT",
        default="127.0.0.1:12347",
        help="status: the agent's health address (127.0.0.1:12347)",
    )
    made.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return made


def _as_json(status: LimitsStatus) -> str:
    return msgspec.json.format(msgspec.json.encode(status), indent=2).decode() + "\n"


def _asked(host: str, port: int) -> bytes:
    connection = HTTPConnection(host, port, timeout=CALL_SECONDS)
    try:
        connection.request("GET", "/limits")
        answer = connection.getresponse()
        body = answer.read(MOST_BYTES)
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        raise NoStatusError(f"it says {answer.status} {answer.reason}")
    return body
