"""`vrampack ui`: the cluster in a browser, read with the reader's own rights, on this machine only."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from extender.http.server import build_server
from extender.settings import ExtenderConfiguration, load_settings
from vrampack.cli.arguments import CommandParser, parse_input_file, parse_number_between
from vrampack.cli.cluster_command import add_cluster_flags, find_kubeconfig, run_cluster_command
from vrampack.cli.output import write_output
from vrampack.cli.ui.access import AccessGate, GuardedApp
from vrampack.cli.ui.app import UiSources, build_ui_app
from vrampack.cli.ui.cluster_name import name_cluster
from vrampack.cli.ui.cluster_reader import ClusterReader
from vrampack.cli.ui.pages import PageRenderer
from vrampack.cli.ui.replay_job import ReplayJob
from vrampack.cli.version import VERSION
from vrampack.http.listener import open_listener
from vrampack.http.open_connections import ConnectionLimits
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials, read_namespace

MAX_PORT = 65535
RECEIVE_SECONDS = 10.0
CALLED_BY_A_BROWSER = ConnectionLimits(total=32, per_peer=32, keep_alive_seconds=60)
"""A browser keeps six connections to a host."""


def main(arguments: Sequence[str]) -> int:
    """Serve the pages until Ctrl-C or SIGTERM; returns the exit code: 0 stopped, 1 unreadable or port in use, 2 misuse."""
    options = build_parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="vrampack: %(message)s")
    return run_cluster_command(
        lambda: _run(options),
        needed_rights="the pages need list of pods, and of nodes where cards are to be shown",
    )


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(
        prog="vrampack ui",
        description="Show the cluster in a browser: cards with who holds what, pending pods explained, simulations. Listens on "
        "loopback only; the URL that it prints works once.",
        epilog="Exit 0: stopped by Ctrl-C or SIGTERM; 1: the cluster cannot be read, or the port is in use; 2: misuse.",
    )
    made.add_argument(
        "--port",
        type=parse_number_between(0, MAX_PORT),
        default=0,
        metavar="N",
        help="a port of 127.0.0.1 (default: a free one)",
    )
    made.add_argument(
        "-n",
        "--namespace",
        action="append",
        metavar="NAME",
        help="show the pods of this namespace; may be given several times (default: all that may be listed)",
    )
    made.add_argument(
        "--metrics",
        type=_parse_url,
        default="",
        metavar="URL",
        help="the extender's metrics: they say what pods that may not be listed hold on each node",
    )
    made.add_argument("--report", type=Path, metavar="FILE", help="also show this file of `vrampack simulate --report`")
    made.add_argument(
        "--config", type=parse_input_file, metavar="FILE", help="the extender's ExtenderConfiguration, if it has one"
    )
    add_cluster_flags(made)
    return made


def _run(options: argparse.Namespace) -> None:
    settings = load_settings(options.config)
    if options.report is not None:
        options.report.open("rb").close()
    asyncio.run(_serve(options, settings))


async def _serve(options: argparse.Namespace, settings: ExtenderConfiguration) -> None:
    with closing(open_listener("127.0.0.1", options.port)) as listener:
        kubeconfig = find_kubeconfig(options.kubeconfig)
        credentials = await load_credentials(kubeconfig, options.context)
        api = Api(credentials, user_agent=f"vrampack-ui/{VERSION}")
        own_namespace = read_namespace(kubeconfig, options.context)
        reader = ClusterReader(api, settings, options.namespace or (), options.metrics, own_namespace=own_namespace)
        job = ReplayJob(_list_flags(options, "kubeconfig", "context"), _list_flags(options, "config"))
        try:
            await reader.read_again()  # before the URL is printed, so that the first page appears at once
            pages = PageRenderer(settings.unit_mib, name_cluster(kubeconfig, options.context, credentials))
            await _serve_pages(UiSources(reader, job, pages, options.report), listener)
        finally:
            await job.close()
            await reader.close()


async def _serve_pages(sources: UiSources, listener: socket.socket) -> None:
    """Print the URL, and serve until a signal comes."""
    gate = AccessGate(listener.getsockname()[1])
    app = GuardedApp(build_ui_app(sources), gate)
    server = build_server(app, tls=None, receive_seconds=RECEIVE_SECONDS, limits=CALLED_BY_A_BROWSER)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, setattr, server, "should_exit", True)  # noqa: FBT003 - setattr's own
    write_output(f"Open {gate.url}\nIt works once, in one browser. Ctrl-C ends it.\n")
    await server.serve(sockets=[listener])


def _list_flags(options: argparse.Namespace, *names: str) -> list[str]:
    """These options as flags for another command."""
    given = {name: getattr(options, name) for name in names}
    return [text for name, value in given.items() if value is not None for text in (f"--{name}", str(value))]


def _parse_url(text: str) -> str:
    """A URL, or the empty default."""
    try:
        url = urlsplit(text)
    except ValueError:
        url = urlsplit("")
    if text and (url.scheme not in ("http", "https") or not url.hostname):
        raise argparse.ArgumentTypeError(f"{text!r} is no URL such as http://127.0.0.1:12346/metrics")
    return text
