"""A list is read in pages that are bounded by bytes, whatever its objects are."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from contextlib import aclosing

import msgspec
import pytest

from tests.kube.large_pods import POD_BYTES, LargePodServer
from tests.kube.sinks import RecordingSink, run_reflector
from tests.support.recorded_api_calls import open_api
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.list_page import MAX_OBJECT_BYTES, ListPage, decode_page
from vrampack.kube.list_pager import MAX_PAGE_BYTES, ListPager
from vrampack.kube.objects import PodObject

MIB = 1024 * 1024
_SIZES = msgspec.json.Decoder(ListPage[int])


class SizedList:
    """A list of objects of these sizes: an item is its size, and spaces make the page as large as they are together."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.pages: list[tuple[int, str]] = []
        """Limit and token of each request."""

    async def fetch(self, *, limit: int, token: str, max_bytes: int) -> bytes:
        self.pages.append((limit, token))
        start = int(token or 0)
        end = min(start + limit, len(self.sizes))
        metadata = {"resourceVersion": "1", "continue": str(end) if end < len(self.sizes) else ""}
        body = msgspec.json.encode({"kind": "PodList", "metadata": metadata, "items": self.sizes[start:end]})
        return body.ljust(sum(self.sizes[start:end]))[:max_bytes]

    async def read(self) -> list[int]:
        pager = ListPager(self.fetch, lambda body: decode_page(body, _SIZES, "pods"), "pods")
        return [size async for page in pager.read_pages() for size in page.items or ()]


LISTS: dict[str, tuple[list[int], list[int]]] = {
    # 50 x 4 KiB = 200 KiB, 100: 400 KiB, 200: 800 KiB, 400: 1.6 MiB is no longer small
    "usual pods": ([4 * 1024] * 1150, [50, 100, 200, 400, 400]),
    "tiny objects": ([100] * 1850, [50, 100, 200, 400, 500, 500, 500]),
    # 50, 25 and 12 x 1.3 MB are more than 8 MiB, 6 are 7.4 MiB
    "the largest pods": ([POD_BYTES] * 18, [50, 25, 12, 6, 6, 6]),
    "an object of more than a page": ([9_000_000] * 3, [50, 25, 12, 6, 3, 1, 1, 1]),
    "exactly a page, so there may be more": ([MAX_PAGE_BYTES], [50, 25, 12, 6, 3, 1]),
    # after the large ones 6 x 4 KiB are small again
    "large ones first": ([POD_BYTES] * 12 + [4 * 1024] * 40, [50, 25, 12, 6, 6, 6, 12, 24]),
    "none": ([], [50]),
}


@pytest.mark.parametrize(("sizes", "limits"), LISTS.values(), ids=LISTS)
async def test_the_limit_follows_the_size_of_the_objects(sizes: list[int], limits: list[int]) -> None:
    listed = SizedList(sizes)
    assert await listed.read() == sizes
    assert [limit for limit, _ in listed.pages] == limits


async def test_a_page_that_is_too_large_is_requested_again_from_the_same_place() -> None:
    listed = SizedList([4 * 1024] * 50 + [POD_BYTES] * 12)
    await listed.read()
    assert listed.pages == [(50, ""), (100, "50"), (50, "50"), (25, "50"), (12, "50"), (6, "50"), (6, "56")]


async def test_an_answer_without_end_to_a_request_for_one_object_is_an_error() -> None:
    """Such a server ignores the limit; asking for less than one cannot help."""
    listed = SizedList([MAX_OBJECT_BYTES])
    with pytest.raises(NoAnswerError, match="although one object was requested"):
        await listed.read()
    assert [limit for limit, _ in listed.pages] == [50, 25, 12, 6, 3, 1]


async def test_an_answer_that_is_no_list_of_the_api_server_ends_the_list() -> None:
    """As in the reflector: the command line must not print an empty cluster."""
    listed = SizedList([])
    status = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":503}'

    async def answer_status(**_: object) -> bytes:
        return status

    listed.fetch = answer_status  # type: ignore[method-assign]
    with pytest.raises(NoAnswerError, match="no list of the API server"):
        await listed.read()


async def test_a_caller_that_stops_early_leaves_no_request_behind() -> None:
    listed = SizedList([POD_BYTES] * 12)
    pager = ListPager(listed.fetch, lambda body: decode_page(body, _SIZES, "pods"), "pods")
    async with aclosing(pager.read_pages()) as pages:
        await anext(pages)
    await asyncio.sleep(0)  # a task that was cancelled has ended
    assert asyncio.all_tasks() == {asyncio.current_task()}


class CountingSink(RecordingSink[PodObject]):
    """Keeps no object: an undecoded field of one would keep its whole page."""

    def on_page(self, objects: Sequence[PodObject]) -> None:
        super().on_page([])
        self.count = getattr(self, "count", 0) + len(objects)


@pytest.mark.parametrize("is_compressed", [False, True], ids=["plain", "gzip"])
async def test_many_pods_of_the_largest_size_are_listed_in_little_memory(*, is_compressed: bool) -> None:
    sink = CountingSink()
    async with LargePodServer(40, is_compressed=is_compressed) as server, open_api(server.url) as api:
        tracemalloc.start()
        try:
            async with run_reflector(api, sink):
                await sink.until(lambda: "list ends" in sink.told)
                _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert sink.count == 40
    assert server.limits == [50, 25, 12, 6, 6, 6, 6, 6, 6, 6]
    # two pages, the pieces of which one is joined, and the client's buffers; all 40 pods are 50 MiB
    assert peak < 28 * MIB
