"""`vrampack admission`: the admission webhook, for API servers without mutating admission policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import uvloop
from prometheus_client import disable_created_metrics

from extender.admission_app import run_admission_webhook
from extender.admission_settings import load_admission_settings
from vrampack.cli.arguments import CommandParser
from vrampack.cli.errors import describe_error, report_error
from vrampack.cli.logging_setup import LOG_FORMATS, start_logging
from vrampack.cli.version import VERSION
from vrampack.config.errors import SettingsError


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM; returns the exit code."""
    options = build_parser().parse_args(arguments)
    start_logging(options.log_level, options.log_format)
    disable_created_metrics()  # a second series per counter, with a creation time that nothing reads
    flags = {"listen.admission": options.listen, "listen.health": options.health_listen}
    try:
        settings = load_admission_settings(
            options.config, {field: text for field, text in flags.items() if text is not None}
        )
        uvloop.run(run_admission_webhook(settings, VERSION))
    except SettingsError as error:
        return report_error(str(error), 2)
    except OSError as error:
        return report_error(describe_error(error), 1)
    return 0


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(prog="vrampack admission", description="Run the admission webhook until SIGTERM.")
    made.add_argument("--config", type=Path, metavar="FILE", required=True, help="AdmissionWebhookConfiguration")
    made.add_argument("--listen", metavar="HOST:PORT", help="where the API server calls (0.0.0.0:12348)")
    made.add_argument("--health-listen", metavar="HOST:PORT", help="health and metrics (127.0.0.1:12349)")
    made.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    made.add_argument(
        "--log-format", default="text", choices=LOG_FORMATS, help="json: one object per line, for collectors"
    )
    return made
