"""`vrampack`: the command and its subcommands. Exit 0 is fine, 1 is no, 2 is misuse."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop
from prometheus_client import disable_created_metrics

from cli.version import VERSION
from extender.app import Options, serve
from extender.errors import SettingsError
from extender.settings import ExtenderConfiguration, load_settings
from kube.errors import CredentialsError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.command == "version":
        sys.stdout.write(f"vrampack {VERSION}\n")
        return 0
    return _serve(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vrampack", description="Packs pods onto GPU cards by memory.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("version", help="print the version")
    serve_parser = commands.add_parser(
        "serve", help="run the extender that kube-scheduler calls", description="Run the extender until SIGTERM."
    )
    serve_parser.add_argument("--config", type=Path, metavar="FILE", help="ExtenderConfiguration; defaults without it")
    serve_parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        default=os.environ.get("KUBECONFIG") or None,
        help="instead of the pod's service account; $KUBECONFIG without it",
    )
    serve_parser.add_argument("--context", metavar="NAME", help="of the kubeconfig; its current one without it")
    serve_parser.add_argument("--listen", metavar="HOST:PORT", help="verbs, inspect and health (127.0.0.1:12345)")
    serve_parser.add_argument("--health-listen", metavar="HOST:PORT", help="health and metrics only (127.0.0.1:12346)")
    serve_parser.add_argument("--url-prefix", metavar="PATH", help="path of the verbs (/gpushare-scheduler)")
    serve_parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    return parser


def _serve(options: argparse.Namespace) -> int:
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    disable_created_metrics()  # a second series for every counter, with a time that nobody asks for
    try:
        settings = _settings(options)
        uvloop.run(serve(Options(settings, VERSION, options.kubeconfig, options.context)))
    except SettingsError as error:
        return _refuse(str(error), 2)
    except (CredentialsError, OSError) as error:
        return _refuse(str(error), 1)
    return 0


def _settings(options: argparse.Namespace) -> ExtenderConfiguration:
    flags = {"verbs": options.listen, "health": options.health_listen, "url_prefix": options.url_prefix}
    return load_settings(options.config, {field: text for field, text in flags.items() if text is not None})


def _refuse(text: str, code: int) -> int:
    sys.stderr.write("".join(f"vrampack: {line}\n" for line in text.splitlines()))
    return code
