"""`vrampack inspect`: the plugin's command without kubectl, so it works inside the extender's pod.

The API server is that of --kubeconfig, else of `$KUBECONFIG`, else ~/.kube/config, else the one this pod runs under.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vrampack.cli.inspect.api_objects import read_continue_token
from vrampack.cli.inspect.cluster import ListReader, Resource
from vrampack.cli.inspect.errors import DamagedObjectError, ExpiredListError, ReadError
from vrampack.cli.inspect.main import ClusterSource, run
from vrampack.cli.kubeconfig import find_kubeconfig
from vrampack.cli.version import VERSION
from vrampack.kube import errors as kube_errors
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials
from vrampack.kube.errors import CredentialsError

PAGE_SIZE = 500
"""The same as the extender's: here a page costs one request on an open connection."""


def main(arguments: Sequence[str] | None = None) -> int:
    """`vrampack inspect` with these arguments; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    return run(given, prog="vrampack inspect", version=VERSION, source=ClusterSource(add_flags, open_reader))


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="the kubeconfig (default: $KUBECONFIG, ~/.kube/config or this pod's account)",
    )
    parser.add_argument("--context", metavar="NAME", help="a context of the kubeconfig (default: its current one)")


@contextmanager
def open_reader(options: argparse.Namespace) -> Iterator[ListReader]:
    """An `ApiServerReader` of the API server that the options name. Raises `ReadError`."""
    with asyncio.Runner() as runner:
        try:
            api = runner.run(_connect(find_kubeconfig(options.kubeconfig), options.context))
        except CredentialsError as error:
            raise ReadError(str(error)) from error
        try:
            yield ApiServerReader(api, runner)
        finally:
            runner.run(api.close())


@dataclass(frozen=True, slots=True)
class ApiServerReader:
    """A `ListReader` on one connection."""

    api: Api
    runner: asyncio.Runner

    def read_pages(self, resource: Resource) -> Iterable[bytes]:
        token = ""
        while True:
            body = self._read_page(resource, token)
            yield body
            try:
                token = read_continue_token(body)
            except DamagedObjectError as error:
                raise ReadError(f"the list of {resource} cannot be read: {error}") from error
            if not token:
                return

    def _read_page(self, resource: Resource, token: str) -> bytes:
        try:
            return self.runner.run(self.api.list_page(resource, limit=PAGE_SIZE, token=token))
        except kube_errors.ResourceExpiredError as error:
            raise ExpiredListError(f"the list of {resource} expired while it was read, twice; try again") from error
        except (kube_errors.RefusedError, kube_errors.NoAnswerError) as error:
            raise ReadError(f"cannot list {resource}: {error}") from error


async def _connect(kubeconfig: Path | None, context: str | None) -> Api:
    credentials = await load_credentials(kubeconfig, context)
    return Api(credentials, user_agent=f"vrampack-inspect/{VERSION}")
