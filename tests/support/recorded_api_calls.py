"""A client of an API server at some address, and the calls that its observer was told about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from vrampack.kube.aio_client import Configuration
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials


class RecordedApiCalls:
    """An observer that keeps what it is told: verb, resource, status."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str, int]] = []

    def __call__(self, *, verb: str, resource: str, code: int, seconds: float) -> None:
        assert seconds >= 0
        self.made.append((verb, resource, code))


@asynccontextmanager
async def open_api(
    url: str,
    calls: RecordedApiCalls | None = None,
    *,
    tls_authority: Path | None = None,
    proxy: str | None = None,
    pool_size: int | None = None,
) -> AsyncIterator[Api]:
    """A client without credentials."""
    configuration = Configuration(host=url, proxy=proxy)
    configuration.connection_pool_maxsize = pool_size or configuration.connection_pool_maxsize
    configuration.ssl_ca_cert = str(tls_authority) if tls_authority else None
    api = Api(Credentials(configuration), observe=calls or RecordedApiCalls())
    try:
        yield api
    finally:
        await api.close()
