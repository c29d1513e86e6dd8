"""What `Api` sends through: aiohttp for most calls, `direct_client.py` for Bindings and watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import aiohttp

from vrampack.kube.aio_client import ApiClient, Configuration
from vrampack.kube.watch_reader import ByteStream

CONNECT_TIMEOUT_SECONDS = 3.0
RETRY_AFTER = "Retry-After"


class ServerReply(Protocol):
    """An answer whose status has arrived. `aiohttp.ClientResponse` is one."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """`RETRY_AFTER` at least."""
        ...

    @property
    def content(self) -> ByteStream:
        """The body as it arrives."""
        ...

    def close(self) -> None:
        """Stop reading. Its connection is kept only if the whole answer was read."""
        ...


class HttpClient(Protocol):
    """Sends a request and returns the answer as soon as its status has arrived.

    Raises `aiohttp.ClientError`, `OSError` or `TimeoutError`; the request may have been sent by then.
    """

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Mapping[str, object] | None,
        *,
        silence_seconds: float | None,
    ) -> ServerReply:
        """`silence_seconds` is how long the server may send nothing; None for a call, whose caller sets the time-out."""
        ...

    async def close(self) -> None: ...


class AiohttpClient:
    """aiohttp as the official client configures it. It supports proxies and gzip, and repeats a GET whose idle connection was closed."""

    def __init__(self, configuration: Configuration) -> None:
        self._host = configuration.host
        self._client = ApiClient(configuration)
        self.tls = self._client.rest_client.ssl_context

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Mapping[str, object] | None,
        *,
        silence_seconds: float | None,
    ) -> ServerReply:
        limits = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=silence_seconds)
        answer = await self._client.rest_client.request(
            method, self._host + target, headers=dict(headers), body=body, _request_timeout=limits
        )
        response: aiohttp.ClientResponse = answer.response
        return response

    async def close(self) -> None:
        await self._client.close()
