"""`vrampack inspect`: the plugin's command without kubectl, so it works inside the extender's pod.

The API server is that of --kubeconfig, else of `$KUBECONFIG`, else ~/.kube/config, else the one this pod runs under.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

import msgspec

from vrampack.cli.arguments import CommandParser
from vrampack.cli.cluster_command import add_cluster_flags, connect_api, find_kubeconfig
from vrampack.cli.inspect.cluster import OwnPodReader, Resource
from vrampack.cli.inspect.errors import ExpiredListError, ForbiddenListError, ReadError
from vrampack.cli.inspect.main import ClusterSource, run
from vrampack.cli.inspect.main import build_parser as build_inspect_parser
from vrampack.cli.version import VERSION
from vrampack.kube import errors as kube_errors
from vrampack.kube.client import Api
from vrampack.kube.credentials import read_namespace
from vrampack.kube.errors import CredentialsError
from vrampack.kube.list_page import ListPage, decode_page
from vrampack.kube.list_pager import ListPager

PROG = "vrampack inspect"
_PAGE = msgspec.json.Decoder(ListPage[msgspec.Raw])


def main(arguments: Sequence[str] | None = None) -> int:
    """`vrampack inspect` with these arguments; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    return run(given, prog=PROG, version=VERSION, source=ClusterSource(add_cluster_flags, open_reader))


def build_parser() -> CommandParser:
    """The flags of this command."""
    return build_inspect_parser(PROG, VERSION, ClusterSource(add_cluster_flags, open_reader))


@contextmanager
def open_reader(options: argparse.Namespace) -> Iterator[OwnPodReader]:
    """An `ApiServerReader` of the API server that the options name. Raises `ReadError`."""
    with asyncio.Runner() as runner:
        try:
            api = runner.run(connect_api(Api, options, "inspect"))
        except CredentialsError as error:
            raise ReadError(str(error)) from error
        try:
            own_namespace = read_namespace(find_kubeconfig(options.kubeconfig), options.context)
            yield ApiServerReader(api, runner, own_namespace)
        finally:
            runner.run(api.close())


@dataclass(frozen=True, slots=True)
class ApiServerReader:
    """An `OwnPodReader` on one connection."""

    api: Api
    runner: asyncio.Runner
    own_namespace: str

    def read_pages(self, resource: Resource) -> Iterable[bytes]:
        return self._read_pages(resource, "")

    def read_own_pods(self) -> Iterable[bytes]:
        return self._read_pages("pods", self.own_namespace)

    def _read_pages(self, resource: Resource, namespace: str) -> Iterable[bytes]:
        fetch = partial(self.api.list_page, resource, namespace=namespace)
        pager = ListPager(fetch, partial(_keep_body, resource=resource), resource)
        pages = pager.read_pages()
        while (page := self._read_next(resource, pages)) is not None:
            yield from page.items or ()

    def _read_next(self, resource: Resource, pages: AsyncIterator[ListPage[bytes]]) -> ListPage[bytes] | None:
        try:
            return self.runner.run(_get_next(pages))
        except kube_errors.ResourceExpiredError as error:
            raise ExpiredListError(f"the list of {resource} expired while it was read, twice; try again") from error
        except (kube_errors.RefusedError, kube_errors.NoAnswerError) as error:
            is_forbidden = isinstance(error, kube_errors.RefusedError) and error.status == HTTPStatus.FORBIDDEN
            raise (ForbiddenListError if is_forbidden else ReadError)(f"cannot list {resource}: {error}") from error


def _keep_body(body: bytes, resource: str) -> ListPage[bytes]:
    """The page as one item: what is read of its objects is common to this command and the kubectl plugin."""
    page = decode_page(body, _PAGE, resource)
    return ListPage(page.metadata, page.kind, [body])


async def _get_next(pages: AsyncIterator[ListPage[bytes]]) -> ListPage[bytes] | None:
    return await anext(pages, None)
