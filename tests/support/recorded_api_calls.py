"""A client of an API server at some address, and what its observer was told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
async def open_api(url: str, calls: RecordedApiCalls | None = None) -> AsyncIterator[Api]:
    """A client without credentials."""
    api = Api(Credentials(Configuration(host=url)), observe=calls or RecordedApiCalls())
    try:
        yield api
    finally:
        await api.close()
