"""`vrampack serve`: the extender, for a scheduler, or on the objects in a file."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop
from prometheus_client import disable_created_metrics

from extender.app import ExtenderOptions, run_extender
from extender.config_reloader import ConfigurationSource
from extender.policy_file import find_policy_file
from extender.settings import load_settings
from vrampack.cards.pod import Pod
from vrampack.cli.arguments import CommandParser, parse_input_file
from vrampack.cli.cluster_command import add_service_flags
from vrampack.cli.errors import describe_error, report_error
from vrampack.cli.version import VERSION
from vrampack.config.errors import SettingsError
from vrampack.config.strict import Overrides
from vrampack.kube.errors import CredentialsError


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM; returns the exit code."""
    options = build_parser().parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    disable_created_metrics()  # a second series per counter, with a creation time that nothing reads
    try:
        overrides = _read_overrides(options)
        policy_file = None if options.policy is None else find_policy_file(options.policy)
        started = ExtenderOptions(
            load_settings(options.config, overrides, policy_file),
            VERSION,
            options.kubeconfig,
            options.context,
            source=ConfigurationSource(options.config, overrides, policy_file),
            scheduler_config=options.scheduler_config,
            pod=options.pod,
        )
        if options.embedded is None:
            uvloop.run(run_extender(started))
        else:
            from vrampack.cli.serve_embedded import run_embedded_extender  # noqa: PLC0415 - imports the simulator, which a cluster does not need

            run_embedded_extender(options.embedded, started)
    except SettingsError as error:
        return report_error(str(error), 2)
    except (CredentialsError, OSError) as error:
        return report_error(describe_error(error), 1)
    return 0


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(prog="vrampack serve", description="Run the extender until SIGTERM.")
    made.add_argument("--config", type=Path, metavar="FILE", help="an ExtenderConfiguration (default: all defaults)")
    made.add_argument(
        "--policy",
        metavar="NAME|FILE",
        help="a preset or a PlacementPolicy, used instead of policy, profiles and rules in --config",
    )
    made.add_argument(
        "--scheduler-config",
        type=Path,
        metavar="FILE",
        help="the scheduler's KubeSchedulerConfiguration, to check at the start",
    )
    made.add_argument(
        "--embedded",
        type=parse_input_file,
        metavar="FILE",
        help="no cluster: the Node and Pod objects of this YAML or JSON file, as `kubectl get -o yaml` writes them",
    )
    add_service_flags(made)
    made.add_argument("--listen", metavar="HOST:PORT", help="verbs, inspect and health (127.0.0.1:12345)")
    made.add_argument("--health-listen", metavar="HOST:PORT", help="health and metrics only (127.0.0.1:12346)")
    made.add_argument("--url-prefix", metavar="PATH", help="path of the verbs (/gpushare-scheduler)")
    made.add_argument(
        "--ready-after",
        type=float,
        metavar="SECONDS",
        help="answer no verb sooner after the start (5); 0 where no other process has bound pods",
    )
    made.add_argument(
        "--pod",
        type=_read_pod,
        metavar="NAMESPACE/NAME/UID",
        help="the pod that this runs in, which gets the events about --config (default: no events)",
    )
    made.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    return made


def _read_pod(text: str) -> Pod:
    parts = text.split("/")
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004 - what the metavar names
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME/UID")
    namespace, name, uid = parts
    return Pod(uid, namespace, name)


def _read_overrides(options: argparse.Namespace) -> Overrides:
    flags = {
        "listen.verbs": options.listen,
        "listen.health": options.health_listen,
        "listen.url_prefix": options.url_prefix,
        # An embedded API server has seen no other process.
        "deadlines.ready_after_seconds": options.ready_after if options.embedded is None else 0.0,
    }
    return {field: text for field, text in flags.items() if text is not None}
