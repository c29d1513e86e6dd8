"""`vrampack limits`: asks this node's agent who holds what on its cards; detaches the kernel module from the driver, and attaches it.

`detach` and `attach` talk to the module itself, so a driver can be replaced while no agent runs.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

import msgspec

from vrampack.agent.limits.kmod.errors import ModuleError
from vrampack.agent.limits.kmod.proc_client import NOT_LOADED, KmodClient
from vrampack.agent.settings import AgentListen
from vrampack.agent.status.schema import LimitsStatus
from vrampack.cli.arguments import CommandParser
from vrampack.cli.errors import report_error
from vrampack.cli.limits.table import describe_open_files, format_table
from vrampack.cli.output import write_output

STATUS_SOCKET = AgentListen().status_socket
CALL_SECONDS = 10.0
MAX_RESPONSE_BYTES = 16 << 20
"""About 50,000 processes; no agent sends a larger answer."""


class NoStatusError(Exception):
    """No agent that serves this status listens there."""


def main(arguments: Sequence[str]) -> int:
    """Run the action; returns the exit code: 0 answered or done, 1 no answer or not done, 2 misuse."""
    options = build_parser().parse_args(arguments)
    if options.action != "status":
        return command_module(options.action, KmodClient())
    try:
        status = msgspec.json.decode(_fetch_status(options.socket), type=LimitsStatus)
    except PermissionError:
        return report_error(f"{options.socket} is for root: run this as root on the node, or in the agent's pod", 1)
    except (NoStatusError, HTTPException, OSError, msgspec.DecodeError) as error:
        hint = "is it the listen.status_socket of an agent of this version on this node?"
        return report_error(f"no answer from an agent at {options.socket}: {error}; {hint}", 1)
    write_output(_format_json(status) if options.output == "json" else format_table(status))
    return 0


def command_module(action: str, proc_client: KmodClient) -> int:
    """Detach or attach this node's module; returns 1 after a detach while open files keep the driver loaded."""
    try:
        if proc_client.read_state() is None:
            return report_error(NOT_LOADED, 1)
        (proc_client.detach if action == "detach" else proc_client.attach)()
        state = proc_client.read_state()
        instances = proc_client.list_budgets()
    except ModuleError as error:
        return report_error(str(error), 1)
    if action == "detach" and state is not None and state.files:
        return report_error(
            f"detached, but the driver cannot be unloaded yet: {describe_open_files(state.files, instances)}", 1
        )
    write_output(f"{action}ed\n")
    return 0


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(
        prog="vrampack limits",
        description=(
            "Show who holds what on this node's cards, if the kernel module (kmod) or library (preload) enforces limits; "
            "detach the module from the driver before the driver is unloaded, and attach it again. Run it as root on the node."
        ),
        epilog="Exit 0: answered, or done; 1: no agent answers there, or not done; 2: misuse.",
    )
    made.add_argument("action", choices=("status", "detach", "attach"))
    made.add_argument(
        "--socket",
        metavar="PATH",
        default=STATUS_SOCKET,
        help=f"status: the agent's listen.status_socket ({STATUS_SOCKET})",
    )
    made.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return made


def _format_json(status: LimitsStatus) -> str:
    return msgspec.json.format(msgspec.json.encode(status), indent=2).decode() + "\n"


class _SocketConnection(HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("agent", timeout=CALL_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CALL_SECONDS)
        self.sock.connect(self._path)


def _fetch_status(path: str) -> bytes:
    connection = _SocketConnection(path)
    try:
        connection.request("GET", "/limits")
        answer = connection.getresponse()
        body = answer.read(MAX_RESPONSE_BYTES)
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        raise NoStatusError(f"it says {answer.status} {answer.reason}")
    return body
