"""The body of a request that a route answers, up to a size."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request


class TooLargeBodyError(Exception):
    """A body over the cap."""


async def read_chunks(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises `TooLargeBodyError`, at once if that size is announced, or `ClientDisconnect`."""
    if int(request.headers.get("content-length", 0)) > max_bytes:
        raise TooLargeBodyError
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise TooLargeBodyError
        yield chunk
