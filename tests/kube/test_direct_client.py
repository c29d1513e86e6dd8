"""Bindings and watches without aiohttp: the same bytes have the same outcome as through aiohttp, and nothing is sent twice."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.proxy import FaultProxy
from tests.fakes.upstream import FakeUpstream, http_reply
from tests.kube.byte_server import AfterReply, ByteReply, ByteServer
from tests.support.certificates import CertificateAuthority
from tests.support.recorded_api_calls import AiohttpApi, RecordedApiCalls, open_api
from vrampack.kube import direct_client
from vrampack.kube.aio_client import Configuration
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials, TokenFile
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.http_connection import MAX_HELD_BYTES
from vrampack.kube.watch_lag import WatchLag
from vrampack.kube.watch_reader import WatchReader
from vrampack.simulator.apiserver import ApiServer

SOON = 5.0
KINDS = pytest.mark.parametrize("kind", [Api, AiohttpApi])
KEEP, CLOSE, RESET = AfterReply
WRITTEN = "written"
NO_ANSWER = "NoAnswerError"
TIMED_OUT = "timed out"
BROKEN = "BrokenWatchError"
OK = b"HTTP/1.1 200 OK\r\n"
CREATED = b"HTTP/1.1 201 Created\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
SUCCESS = b'{"kind":"Status","status":"Success"}'
SUCCESS_LENGTH = b"Content-Length: %d\r\n" % len(SUCCESS)
BOUND = CREATED + SUCCESS_LENGTH + b"\r\n" + SUCCESS


def refusal(status: int, message: str = "no") -> bytes:
    body = json.dumps({"kind": "Status", "reason": "Because", "message": message}, ensure_ascii=False).encode()
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


async def bind(api: Api, *, timeout_seconds: float = SOON) -> str:
    """How a Binding ended."""
    try:
        await api.bind("default", "p", "u", "n", {"a": "\u00fc"}, timeout_seconds=timeout_seconds)
    except NoAnswerError as error:
        return TIMED_OUT if "TimeoutError" in str(error) else NO_ANSWER
    except RefusedError as error:
        return f"{type(error).__name__} {error}"
    return WRITTEN


BINDINGS = {
    "a length": (BOUND, KEEP, WRITTEN),
    "chunks": (
        CREATED + CHUNKED + b"1\r\n{\r\n%x;x=y\r\n%b\r\n0\r\nTrailer: x\r\n\r\n" % (len(SUCCESS) - 1, SUCCESS[1:]),
        KEEP,
        WRITTEN,
    ),
    "until it is closed": (CREATED + b"\r\n" + SUCCESS, CLOSE, WRITTEN),
    "HTTP/1.0": (b"HTTP/1.0 201 Created\r\n" + SUCCESS_LENGTH + b"\r\n" + SUCCESS, CLOSE, WRITTEN),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", KEEP, NO_ANSWER),
    "another content": (CREATED + b"Content-Length: 2\r\n\r\n{}", KEEP, NO_ANSWER),
    "a status before the status": (b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + BOUND, KEEP, WRITTEN),
    "conflict": (refusal(409, "sch\u00f6n"), KEEP, "RefusedError 409 Because: sch\u00f6n"),
    "throttled": (refusal(429), KEEP, "RefusedError 429 Because: no"),
    "gone": (refusal(410), KEEP, "ResourceExpiredError 410 Because: no"),
    "server error": (refusal(503), KEEP, NO_ANSWER),
    "a redirect": (refusal(302), KEEP, NO_ANSWER),
    "a long refusal": (refusal(403, "x" * 6_000_000), KEEP, "RefusedError 403 Because: " + "x" * 6_000_000),
    "closed at once": (b"", CLOSE, NO_ANSWER),
    "reset at once": (b"", RESET, NO_ANSWER),
    "cut in the head": (CREATED + b"Content-Le", CLOSE, NO_ANSWER),
    "cut after the head": (CREATED + b"Content-Length: 2\r\n\r\n", CLOSE, NO_ANSWER),
    "cut in the body": (CREATED + b"Content-Length: 99\r\n\r\n" + SUCCESS, CLOSE, NO_ANSWER),
    "reset in the body": (CREATED + b"Content-Length: 99\r\n\r\n" + SUCCESS, RESET, NO_ANSWER),
    "cut in a chunk": (CREATED + CHUNKED + b"2\r\n{", CLOSE, NO_ANSWER),
    "cut before the last chunk": (CREATED + CHUNKED + b"2\r\n{}\r\n", CLOSE, NO_ANSWER),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.9\r\n", KEEP, NO_ANSWER),
    "another protocol": (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", KEEP, NO_ANSWER),
    "two lengths": (CREATED + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", KEEP, NO_ANSWER),
    "an invalid length": (CREATED + b"Content-Length: two\r\n\r\n{}", KEEP, NO_ANSWER),
    "a chunk without a length": (CREATED + CHUNKED + b"x\r\n{}\r\n0\r\n\r\n", KEEP, NO_ANSWER),
}


@KINDS
@pytest.mark.parametrize("is_slow", [False, True], ids=["at once", "byte by byte"])
@pytest.mark.parametrize(("raw", "then", "outcome"), BINDINGS.values(), ids=BINDINGS)
async def test_a_binding_is_sent_once_and_answered(
    kind: type[Api],
    is_slow: bool,  # noqa: FBT001 - a table
    raw: bytes,
    then: AfterReply,
    outcome: str,
) -> None:
    """With some bytes that are not HTTP, aiohttp waits until the call times out."""
    calls = RecordedApiCalls()
    reply = ByteReply(raw, then, is_slow=is_slow and len(raw) < 1000)
    may_wait = kind is AiohttpApi and outcome == NO_ANSWER
    async with ByteServer([reply]) as server, open_api(server.url, calls, kind=kind) as api:
        found = await bind(api, timeout_seconds=0.5 if may_wait else SOON)
    assert found == outcome or (may_wait and found == TIMED_OUT)
    assert len(server.requests) == 1
    assert len(calls.made) == 1


async def read_lines(api: Api, *, silence_seconds: float = SOON) -> tuple[list[bytes], str]:
    """The lines of a watch, and how it ended."""
    lines: list[bytes] = []
    try:
        async with api.watch("pods", "1", server_seconds=60, silence_seconds=silence_seconds) as stream:
            with WatchReader(stream, WatchLag("pods", clock=asyncio.get_running_loop().time)) as reader:
                while (line := await reader.read_line()) is not None:
                    lines.append(line)
    except (NoAnswerError, RefusedError) as error:
        return lines, type(error).__name__
    return lines, "ended"


def chunks(*bodies: bytes) -> bytes:
    """A chunk for each body; an empty body ends the answer."""
    return b"".join(b"%x\r\n%b\r\n" % (len(body), body) for body in bodies)


LONG = b"x" * (MAX_HELD_BYTES + 1_000_000)
WATCHES: dict[str, tuple[bytes, AfterReply, Sequence[bytes], str]] = {
    "a line in a chunk": (OK + CHUNKED + chunks(b"a\n", b"b\n", b""), KEEP, [b"a", b"b"], "ended"),
    "lines in a chunk, a line in chunks": (
        OK + CHUNKED + chunks(b"a\nb", b"c\nd\n", b""),
        KEEP,
        [b"a", b"bc", b"d"],
        "ended",
    ),
    "a character in two chunks": (OK + CHUNKED + chunks(b"\xc3", b"\xbc\n", b""), KEEP, [b"\xc3\xbc"], "ended"),
    "until it is closed": (OK + b"\r\na\n", CLOSE, [b"a"], "ended"),
    "lines that are longer than what is held": (
        OK + CHUNKED + chunks(LONG + b"\n", LONG, LONG + b"\n", b""),
        KEEP,
        [LONG, LONG + LONG],
        "ended",
    ),
    "the end within a line": (OK + CHUNKED + chunks(b"a\nb", b""), KEEP, [b"a"], BROKEN),
    "cut between lines": (OK + CHUNKED + chunks(b"a\n"), CLOSE, [b"a"], BROKEN),
    "reset": (OK + CHUNKED, RESET, [], BROKEN),
    "expired": (refusal(410), KEEP, [], "ResourceExpiredError"),
    "throttled": (refusal(429), KEEP, [], "RefusedError"),
    "server error": (refusal(500), KEEP, [], NO_ANSWER),
    "closed at once": (b"", CLOSE, [], NO_ANSWER),
    "silent": (OK + CHUNKED + chunks(b"a\n"), KEEP, [b"a"], "SilentWatchError"),
}


@KINDS
@pytest.mark.parametrize(("raw", "then", "lines", "end"), WATCHES.values(), ids=WATCHES)
async def test_a_watch_yields_its_lines_and_reports_how_it_ended(
    kind: type[Api], raw: bytes, then: AfterReply, lines: Sequence[bytes], end: str
) -> None:
    silence = 0.5 if end == "SilentWatchError" else SOON
    reply = ByteReply(raw, then, is_slow=end == BROKEN)  # so that the head comes first
    async with ByteServer([reply]) as server, open_api(server.url, kind=kind) as api:
        assert await read_lines(api, silence_seconds=silence) == (lines, end)
    await server.all_closed()


async def test_lines_before_a_cut_are_read() -> None:
    """Even if the client has noticed the cut by then."""
    replies = [ByteReply(OK + CHUNKED + chunks(b"a\n"), CLOSE), ByteReply(BOUND)]
    async with ByteServer(replies) as server, open_api(server.url) as api:
        with pytest.raises(NoAnswerError):  # noqa: PT012 - it is raised by the second read
            async with api.watch("pods", "1", server_seconds=60, silence_seconds=SOON) as stream:
                await server.all_closed()
                await api.list_page("pods", limit=1)  # the client has noticed by now
                assert await stream.readany() == b"a\n"
                await stream.readany()


async def test_a_watch_with_bytes_that_are_not_http_is_broken() -> None:
    async with ByteServer([ByteReply(OK + CHUNKED + chunks(b"a\n") + b"x\r\n")]) as server:
        async with open_api(server.url) as api:
            assert await read_lines(api) == ([b"a"], BROKEN)
        await server.all_closed()


async def test_a_compressed_answer_counts_as_unanswered() -> None:
    reply = ByteReply(CREATED + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")
    async with ByteServer([reply]) as server, open_api(server.url) as api:
        assert await bind(api) == NO_ANSWER
    assert b"\r\nAccept-Encoding: identity\r\n" in server.requests[0]


@KINDS
async def test_bindings_share_a_connection(kind: type[Api]) -> None:
    async with ByteServer([ByteReply(BOUND)]) as server, open_api(server.url, kind=kind) as api:
        assert [await bind(api) for _ in range(3)] == [WRITTEN] * 3
    assert (server.accepted, len(server.requests)) == (1, 3)


NOT_KEPT = {
    "the server says so": ByteReply(CREATED + b"Connection: close\r\n" + SUCCESS_LENGTH + b"\r\n" + SUCCESS),
    "the server closes it": ByteReply(BOUND, CLOSE),
    "the server says more": ByteReply(BOUND + refusal(409)),
}


@KINDS
@pytest.mark.parametrize("reply", NOT_KEPT.values(), ids=NOT_KEPT)
async def test_some_answers_close_the_connection(kind: type[Api], reply: ByteReply) -> None:
    async with ByteServer([reply]) as server, open_api(server.url, kind=kind) as api:
        assert await bind(api) == WRITTEN
        await server.all_closed()
        await api.list_page("pods", limit=1)  # the client has noticed by now
        assert await bind(api) == WRITTEN
    assert (server.accepted, len(server.requests)) == (3, 3)


@KINDS
async def test_a_binding_cut_on_a_reused_connection_counts_as_unanswered(kind: type[Api]) -> None:
    """The server may have written the Binding before the cut, so it is not sent again."""
    async with ByteServer([ByteReply(BOUND), ByteReply(b"", CLOSE)]) as server, open_api(server.url, kind=kind) as api:
        assert [await bind(api), await bind(api)] == [WRITTEN, NO_ANSWER]
    assert (server.accepted, len(server.requests)) == (1, 2)


@KINDS
async def test_the_pool_bounds_the_number_of_connections(kind: type[Api]) -> None:
    async with ByteServer([ByteReply(BOUND, is_slow=True)]) as server:
        configuration = Configuration(host=server.url, connection_pool_maxsize=2)
        api = kind(Credentials(configuration), observe=RecordedApiCalls())
        assert await asyncio.gather(*[bind(api) for _ in range(7)]) == [WRITTEN] * 7
        await api.close()
    assert server.most_open == 2


@KINDS
@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "timed out"])
async def test_an_abandoned_binding_frees_its_place_and_closes_its_connection(
    kind: type[Api],
    is_cancelled: bool,  # noqa: FBT001 - a table
) -> None:
    async with ByteServer([ByteReply(b""), ByteReply(BOUND)]) as server:
        configuration = Configuration(host=server.url, connection_pool_maxsize=1)
        api = kind(Credentials(configuration), observe=RecordedApiCalls())
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
        await api.close()
    assert server.accepted == 2


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_client, "IDLE_SECONDS", 0.05)
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


async def test_a_handshake_that_does_not_end_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_client, "CONNECT_TIMEOUT_SECONDS", 0.1)
    async with ByteServer([ByteReply(BOUND)]) as server, open_api(server.url.replace("http:", "https:")) as api:
        with pytest.raises(NoAnswerError, match=r"no connection to 127\.0\.0\.1:\d+ within 0\.1 s"):
            await api.bind("default", "p", "u", "n", {}, timeout_seconds=SOON)
        await server.all_closed()


def server_tls(authority: CertificateAuthority) -> ssl.SSLContext:
    pair = authority.issue_pair("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


@KINDS
async def test_the_servers_certificate_is_checked(kind: type[Api], tmp_path: Path) -> None:
    ours, theirs = CertificateAuthority(tmp_path / "ours"), CertificateAuthority(tmp_path / "theirs")
    async with ApiServer() as api_server:
        pod = api_server.create({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}})
        async with FaultProxy(int(api_server.url.rpartition(":")[2]), tls=server_tls(ours)) as proxy:
            async with open_api(proxy.url, kind=kind, tls_authority=theirs.ca_file) as api:
                assert await bind(api) == NO_ANSWER
            assert proxy.count("*", "") == 0
            async with open_api(proxy.url, kind=kind, tls_authority=ours.ca_file) as api:
                await api.bind("default", "p", pod["metadata"]["uid"], "n", {}, timeout_seconds=SOON)
                async with api.watch("pods", "1", server_seconds=1, silence_seconds=SOON) as stream:
                    assert b'"nodeName":"n"' in await stream.readany()


@KINDS
async def test_each_binding_is_sent_with_the_current_token(kind: type[Api], tmp_path: Path) -> None:
    """On one connection; after a 401 the file is read at once."""
    (tmp_path / "token").write_text("first")
    async with ByteServer([ByteReply(BOUND), ByteReply(refusal(401)), ByteReply(BOUND)]) as server:
        token = TokenFile(tmp_path / "token", clock=lambda: 0.0)
        api = kind(Credentials(Configuration(host=server.url), token), observe=RecordedApiCalls())
        for written in ("second", "second", "second"):
            await bind(api)
            (tmp_path / "token").write_text(written)
        await api.close()
    sent = [request.partition(b"Authorization: Bearer ")[2].partition(b"\r\n")[0] for request in server.requests]
    assert (server.accepted, sent) == (1, [b"first", b"first", b"second"])


async def test_the_request_equals_that_of_aiohttp() -> None:
    """Except for the order of headers, the encodings, and how JSON writes characters beyond ASCII."""
    sent = []
    for kind in (Api, AiohttpApi):
        async with ByteServer([ByteReply(BOUND)]) as server, open_api(server.url + "/base", kind=kind) as api:
            await bind(api)
            await read_lines(api)
        for request in server.requests:
            head, _, body = request.replace(str(server.port).encode(), b"PORT").partition(b"\r\n\r\n")
            first, *lines = head.split(b"\r\n")
            kept = {line for line in lines if not line.startswith((b"Accept-Encoding", b"Content-Length"))}
            sent.append((first, kept, json.loads(body or b"null")))
    assert sent[:2] == sent[2:]
    assert sent[0][0] == b"POST /base/api/v1/namespaces/default/pods/p/binding HTTP/1.1"


async def test_a_header_with_a_line_break_is_not_sent() -> None:
    async with ByteServer([ByteReply(BOUND)]) as server:
        api = Api(Credentials(Configuration(host=server.url)), user_agent="a\r\nX-Forged: b")
        with pytest.raises(ValueError, match="line break"):
            await bind(api)
        await api.close()
    assert server.accepted == 0


@pytest.mark.parametrize("url", ["api.example:6443", "https://api.example:port", "https://[::1", "https://"])
async def test_an_invalid_address_counts_as_unanswered(url: str) -> None:
    async with open_api(url) as api:
        assert await bind(api) == NO_ANSWER


async def test_bindings_go_through_the_configured_proxy() -> None:
    async with FakeUpstream(replies=[http_reply(SUCCESS, 201)]) as proxy:
        configuration = Configuration(host="http://api.example:8080")
        configuration.proxy = f"http://127.0.0.1:{proxy.port}"
        api = Api(Credentials(configuration))
        assert await bind(api) == WRITTEN
        await api.close()
    assert proxy.requests[0].startswith(b"POST http://api.example:8080/api/v1/namespaces/default/pods/p/binding ")
