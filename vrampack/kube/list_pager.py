"""Reads a list page by page and bounds what is in memory by bytes: a pod may have 1.5 MB, and 500 of them a container's limit.

    request `limit` objects --complete below 8 MiB--> decode it while the next one comes; below 1 MiB: double the limit
      ^                    '--8 MiB, and more to come--> hang up, halve the limit, request the same page again
      '---------------------------'

A page of a single object is read to its end, which cannot be far. Objects are decoded without what the caller does not name, so
what stays in memory is two pages at most: one that is processed, and the next one that is being read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Generic, Protocol

import msgspec

from vrampack.kube.api_caller import Resource
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.list_page import MAX_OBJECT_BYTES, Item, ListPage, decode_page

FIRST_LIMIT = 50
"""Objects of the first page: an API server puts together a whole page before it sends it, and 50 of the largest are 75 MB."""
MAX_LIMIT = 500
"""Decoding 500 usual pods takes about 5 ms, and nothing may hold the loop for 20."""
MAX_PAGE_BYTES = 8 * 1024 * 1024
"""Of several objects: 6 of the largest pods, or some 1,800 usual ones."""
SMALL_PAGE_BYTES = 1024 * 1024


class PageFetcher(Protocol):
    """Requests one page and returns its first `max_bytes`."""

    async def __call__(self, *, limit: int, token: str, max_bytes: int) -> bytes: ...


class ListPager(Generic[Item]):
    """Reads one list, once."""

    def __init__(self, fetch: PageFetcher, decode: Callable[[bytes], ListPage[Item]], resource: str) -> None:
        """`decode` also checks the page (`list_page.check_page`)."""
        self._fetch = fetch
        self._decode = decode
        self._resource = resource
        self._limit = FIRST_LIMIT

    async def read_pages(self) -> AsyncGenerator[ListPage[Item]]:
        """Every page. The next one is requested before a page is processed, so that the server works meanwhile.

        Raises what `fetch` and `decode` raise; `ResourceExpiredError` if a page is requested too late.
        """
        following: asyncio.Task[bytes] | None = None
        body = await self._read_page("")
        try:
            while True:
                page = self._decode(body)
                del body
                token = page.metadata.continue_
                following = asyncio.create_task(self._read_page(token)) if token else None
                await asyncio.sleep(0)  # so that the call is sent
                yield page
                del page
                if following is None:
                    return
                body = await following
        finally:
            if following is not None:
                following.cancel()

    async def _read_page(self, token: str) -> bytes:
        while True:
            limit = self._limit
            max_bytes = MAX_PAGE_BYTES if limit > 1 else MAX_OBJECT_BYTES
            body = await self._fetch(limit=limit, token=token, max_bytes=max_bytes)
            if len(body) < max_bytes:
                break
            if limit == 1:
                text = f"more than {MAX_OBJECT_BYTES} bytes although one object was requested"
                raise NoAnswerError(f"list {self._resource}: {text}")
            self._limit = limit // 2
            del body
        if len(body) < SMALL_PAGE_BYTES:
            self._limit = min(2 * limit, MAX_LIMIT)
        return body


def list_pages(
    api: Api,
    resource: Resource,
    decoder: msgspec.json.Decoder[ListPage[Item]],
    *,
    field_selector: str = "",
    namespace: str = "",
) -> AsyncGenerator[ListPage[Item]]:
    """Every page of a resource: of the cluster, of a namespace, or of those selected. Raises as `ListPager.read_pages`."""
    fetch = partial(api.list_page, resource, field_selector=field_selector, namespace=namespace)
    return ListPager(fetch, partial(decode_page, decoder=decoder, resource=resource), resource).read_pages()
