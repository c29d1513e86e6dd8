"""Calls share kept connections, and nothing is sent twice but a GET on an idle connection that the server had closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.kube.byte_server import ByteReply, ByteServer
from tests.kube.raw_calls import (
    BOUND,
    BROKEN,
    CHUNKED,
    CLOSE,
    CREATED,
    NO_ANSWER,
    OK,
    RESET,
    SOON,
    SUCCESS,
    SUCCESS_LENGTH,
    TIMED_OUT,
    WRITTEN,
    bind,
    list_pods,
    read_lines,
    refusal,
)
from tests.support.recorded_api_calls import open_api
from vrampack.kube import http_client
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError


async def test_bindings_share_a_connection() -> None:
    async with ByteServer([ByteReply(BOUND)]) as server, open_api(server.url) as api:
        assert [await bind(api) for _ in range(3)] == [WRITTEN] * 3
    assert (server.accepted, len(server.requests)) == (1, 3)


NOT_KEPT = {
    "the server says so": ByteReply(CREATED + b"Connection: close\r\n" + SUCCESS_LENGTH + b"\r\n" + SUCCESS),
    "the server closes it": ByteReply(BOUND, CLOSE),
    "the server says more": ByteReply(BOUND + refusal(409)),
}


@pytest.mark.parametrize("reply", NOT_KEPT.values(), ids=NOT_KEPT)
async def test_some_answers_close_the_connection(reply: ByteReply) -> None:
    async with ByteServer([reply]) as server, open_api(server.url) as api:
        assert await bind(api) == WRITTEN
        await server.all_closed()
        await read_lines(api)  # on a connection of its own; the client has noticed by now
        assert await bind(api) == WRITTEN
    assert (server.accepted, len(server.requests)) == (3, 3)


async def test_a_binding_cut_on_a_reused_connection_counts_as_unanswered() -> None:
    """The server may have written the Binding before the cut, so it is not sent again."""
    async with ByteServer([ByteReply(BOUND), ByteReply(b"", CLOSE)]) as server, open_api(server.url) as api:
        assert [await bind(api), await bind(api)] == [WRITTEN, NO_ANSWER]
    assert (server.accepted, len(server.requests)) == (1, 2)


async def patch_node(api: Api) -> str:
    try:
        await api.patch_node("n", {}, timeout_seconds=SOON)
    except NoAnswerError:
        return NO_ANSWER
    return WRITTEN


LISTED = OK + b"Content-Length: 2\r\n\r\n{}"
IDLE_CONNECTIONS: dict[str, tuple[list[ByteReply], Callable[[Api], Awaitable[str]], str, int, int]] = {
    # what is answered after the first call; the call; its outcome; all connections, all requests
    "a GET": ([ByteReply(b"", CLOSE), ByteReply(LISTED)], list_pods, "{}", 2, 3),
    "a GET, reset": ([ByteReply(b"", RESET), ByteReply(LISTED)], list_pods, "{}", 2, 3),
    "a GET, closed twice": ([ByteReply(b"", CLOSE)], list_pods, NO_ANSWER, 2, 3),
    "a GET, closed within the answer": ([ByteReply(b"H", CLOSE)], list_pods, NO_ANSWER, 1, 2),
    "a GET that is not answered as HTTP": ([ByteReply(b"SSH\r\n")], list_pods, NO_ANSWER, 1, 2),
    "a PATCH": ([ByteReply(b"", CLOSE)], patch_node, NO_ANSWER, 1, 2),
    "a Binding": ([ByteReply(b"", CLOSE)], bind, NO_ANSWER, 1, 2),
}


@pytest.mark.parametrize(
    ("replies", "call", "outcome", "connections", "requests"), IDLE_CONNECTIONS.values(), ids=IDLE_CONNECTIONS
)
async def test_only_a_get_on_a_closed_idle_connection_is_sent_once_more(
    replies: list[ByteReply], call: Callable[[Api], Awaitable[str]], outcome: str, connections: int, requests: int
) -> None:
    """The place in the pool is free again in any case."""
    async with ByteServer([ByteReply(BOUND), *replies]) as server, open_api(server.url, pool_size=1) as api:
        assert await bind(api) == WRITTEN
        assert await call(api) == outcome
        assert (server.accepted, len(server.requests)) == (connections, requests)
        server.replies[:] = [ByteReply(BOUND)]
        assert await bind(api) == WRITTEN


async def test_a_get_on_a_new_connection_is_sent_once() -> None:
    async with ByteServer([ByteReply(b"", CLOSE)]) as server, open_api(server.url) as api:
        assert await list_pods(api) == NO_ANSWER
    assert len(server.requests) == 1


async def test_a_get_that_waits_to_be_sent_once_more_counts_as_sent() -> None:
    """It was sent on the idle connection. Another call takes its place in the pool, and it times out behind that call."""
    replies = [ByteReply(BOUND), ByteReply(b"", CLOSE), ByteReply(b"")]
    async with ByteServer(replies) as server, open_api(server.url, pool_size=1) as api:
        assert await bind(api) == WRITTEN
        get = asyncio.create_task(api.get_pod("default", "p", timeout_seconds=0.5))
        other = asyncio.create_task(bind(api))
        with pytest.raises(NoAnswerError) as caught:
            await get
        other.cancel()
    assert (type(caught.value), len(server.requests)) == (NoAnswerError, 3)


async def test_the_pool_bounds_the_number_of_connections() -> None:
    async with ByteServer([ByteReply(BOUND, is_slow=True)]) as server, open_api(server.url, pool_size=2) as api:
        assert await asyncio.gather(*[bind(api) for _ in range(7)]) == [WRITTEN] * 7
    assert server.most_open == 2


@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "timed out"])
async def test_an_abandoned_binding_frees_its_place_and_closes_its_connection(
    is_cancelled: bool,  # noqa: FBT001 - a table
) -> None:
    async with ByteServer([ByteReply(b""), ByteReply(BOUND)]) as server, open_api(server.url, pool_size=1) as api:
        first = asyncio.create_task(bind(api, timeout_seconds=SOON if is_cancelled else 0.5))
        await server.asked(1)
        if is_cancelled:
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        else:
            assert await first == TIMED_OUT
        await server.all_closed()
        assert await bind(api) == WRITTEN
    assert server.accepted == 2


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "IDLE_SECONDS", 0.05)
    async with ByteServer([ByteReply(BOUND)]) as server, open_api(server.url) as api:
        assert await bind(api) == WRITTEN
        await server.all_closed()
        assert await bind(api) == WRITTEN


async def test_a_closed_client_leaves_no_connection() -> None:
    async with ByteServer([ByteReply(BOUND), ByteReply(OK + CHUNKED)]) as server:
        async with open_api(server.url) as api:
            assert await bind(api) == WRITTEN
            watch = asyncio.create_task(read_lines(api))
            await server.asked(2)
        await server.all_closed()
        assert (await watch)[1] in {BROKEN, NO_ANSWER}
