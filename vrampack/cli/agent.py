"""`vrampack agent`: the node agent, one per GPU node, or standalone on a host without Kubernetes."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import socket
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import disable_created_metrics

from vrampack.agent.host import agent
from vrampack.agent.limits.errors import ImpossibleBackEndError
from vrampack.agent.nvml.nvml_driver import NvmlDriver
from vrampack.agent.settings import AgentConfiguration, load_settings
from vrampack.cli.arguments import CommandParser
from vrampack.cli.cluster_command import add_service_flags
from vrampack.cli.errors import describe_error, report_error
from vrampack.cli.logging_setup import LOG_FORMATS, start_logging
from vrampack.cli.version import VERSION
from vrampack.config.errors import SettingsError
from vrampack.kube.errors import CredentialsError

MAX_DESCRIPTORS = 65_536
"""Far more than the agent needs; a higher limit would only let a fault use up the node's descriptors."""


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM; returns the exit code."""
    options = build_parser().parse_args(arguments)
    start_logging(options.log_level, options.log_format)
    disable_created_metrics()  # a second series per counter, with a creation time that nothing reads
    try:
        overrides = {} if options.health_listen is None else {"listen.health": options.health_listen}
        settings = load_settings(options.config, overrides)
        is_standalone = options.standalone or settings.mode == "standalone"
        if not options.node_name and not is_standalone:
            text = "--node-name or $NODE_NAME: the name of this node; the DaemonSet takes it from spec.nodeName"
            return report_error(f"{text}. On a host without Kubernetes: --standalone", 2)
        if is_standalone and settings.metrics.authorization == "token":
            return report_error(
                "metrics.authorization: token asks an API server, which a standalone agent does not have", 2
            )
        raise_descriptor_limit()
        asyncio.run(_standalone(settings, options) if is_standalone else _in_kubernetes(settings, options))
    except SettingsError as error:
        return report_error(str(error), 2)
    except (CredentialsError, ImpossibleBackEndError, OSError) as error:
        return report_error(describe_error(error), 1)
    return 0


def raise_descriptor_limit() -> None:
    """Raise the limit as far as this process may: each start opens some, and a container runtime may allow only 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _in_kubernetes(settings: AgentConfiguration, options: argparse.Namespace) -> None:
    from vrampack.agent.components import AgentOptions  # noqa: PLC0415 - imports the Kubernetes client, which other hosts do not need
    from vrampack.agent.process import run_agent  # noqa: PLC0415 - likewise

    started = AgentOptions(settings, VERSION, options.node_name, options.kubeconfig, options.context)
    await run_agent(started, _library(settings))


async def _standalone(settings: AgentConfiguration, options: argparse.Namespace) -> None:
    host = options.node_name or socket.gethostname()
    await agent.run_standalone_agent(settings, _library(settings), version=VERSION, host=host)


def _library(settings: AgentConfiguration) -> NvmlDriver:
    return NvmlDriver(call_timeout_seconds=settings.health.call_seconds)


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(prog="vrampack agent", description="Run the node's agent until SIGTERM.")
    made.add_argument("--standalone", action="store_true", help="without Kubernetes: containers set their own limits")
    made.add_argument("--config", type=Path, metavar="FILE", help="an AgentConfiguration (default: all defaults)")
    made.add_argument(
        "--node-name",
        metavar="NAME",
        default=os.environ.get("NODE_NAME", ""),
        help="this node's name in the API server (default: $NODE_NAME; standalone: the host's name)",
    )
    add_service_flags(made)
    made.add_argument("--health-listen", metavar="HOST:PORT", help="health and metrics (0.0.0.0:12347)")
    made.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    made.add_argument(
        "--log-format", default="text", choices=LOG_FORMATS, help="json: one object per line, for collectors"
    )
    return made
