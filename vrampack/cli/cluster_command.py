"""What every command that talks to an API server has: its flags, its client, and the exit code of each error."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

from vrampack.cli.errors import MissingObjectError, MisuseError, describe_error, report_error
from vrampack.cli.version import VERSION
from vrampack.config.errors import SettingsError
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials, read_namespace
from vrampack.kube.errors import CredentialsError, NoAnswerError, RefusedError

_Client = TypeVar("_Client", bound=Api)
_FORBIDDEN_STATUSES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a cluster, as a person at a terminal expects them."""
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="the kubeconfig (default: $KUBECONFIG, ~/.kube/config or this pod's account)",
    )
    _add_context_flag(parser)


def add_service_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a cluster for a program that usually runs in a pod, and never reads ~/.kube/config."""
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        default=os.environ.get("KUBECONFIG") or None,
        help="used instead of the pod's service account (default: $KUBECONFIG)",
    )
    _add_context_flag(parser)


def _add_context_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--context", metavar="NAME", help="a context of the kubeconfig (default: its current one)")


def find_kubeconfig(given: Path | None) -> Path | None:
    """Find the kubeconfig as kubectl does: the given one, `$KUBECONFIG`, ~/.kube/config. None: use this pod's account."""
    if given is not None:
        return given
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    usual = Path.home() / ".kube" / "config"
    return usual if usual.exists() or "KUBERNETES_SERVICE_HOST" not in os.environ else None


def choose_namespace(options: argparse.Namespace) -> str:
    """The namespace that the flags name, else the context's, as kubectl chooses it."""
    return options.namespace or read_namespace(find_kubeconfig(options.kubeconfig), options.context)


async def connect_api(client: type[_Client], options: argparse.Namespace, command: str) -> _Client:
    """A client of the cluster that the flags name. Raises `CredentialsError`."""
    credentials = await load_credentials(find_kubeconfig(options.kubeconfig), options.context)
    return client(credentials, user_agent=f"vrampack-{command}/{VERSION}")


@asynccontextmanager
async def open_api(client: type[_Client], options: argparse.Namespace, command: str) -> AsyncIterator[_Client]:
    """The same client, closed after the block."""
    api = await connect_api(client, options, command)
    try:
        yield api
    finally:
        await api.close()


def run_cluster_command(run: Callable[[], None], *, needed_rights: str = "") -> int:
    """Run a command to its exit code: 0 done, 1 with one line if the cluster or a file ended it, 2 for misuse.

    The line ends with `needed_rights` if the account lacks a right.
    """
    try:
        run()
    except (MisuseError, SettingsError) as error:
        return report_error(str(error), 2)
    except RefusedError as error:
        hint = f"; {needed_rights}" if needed_rights and error.status in _FORBIDDEN_STATUSES else ""
        return report_error(f"{error}{hint}", 1)
    except NoAnswerError as error:
        return report_error(f"no answer from the API server: {error}", 1)
    except (CredentialsError, MissingObjectError, OSError) as error:
        return report_error(describe_error(error), 1)
    return 0
