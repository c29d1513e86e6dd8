"""The connections to the API server: what each sequence of bytes means, and that nothing is sent twice but a GET on a closed idle one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.proxy import FaultProxy
from tests.kube.byte_server import AfterReply, ByteReply, ByteServer
from tests.kube.raw_calls import (
    BOUND,
    BROKEN,
    CHUNKED,
    CLOSE,
    CREATED,
    KEEP,
    LIST_BYTES,
    NO_ANSWER,
    NOT_SENT,
    OK,
    RESET,
    SOON,
    SUCCESS,
    SUCCESS_LENGTH,
    WRITTEN,
    bind,
    chunks,
    list_pods,
    read_lines,
    refusal,
)
from tests.support.certificates import CertificateAuthority
from tests.support.recorded_api_calls import RecordedApiCalls, open_api
from vrampack.kube import http_client
from vrampack.kube.aio_client import Configuration
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials, TokenFile
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.http_connection import MAX_HELD_BYTES, UNPACKED_BYTES
from vrampack.simulator.apiserver import ApiServer

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


@pytest.mark.parametrize("is_slow", [False, True], ids=["at once", "byte by byte"])
@pytest.mark.parametrize(("raw", "then", "outcome"), BINDINGS.values(), ids=BINDINGS)
async def test_a_binding_is_sent_once_and_answered(
    is_slow: bool,  # noqa: FBT001 - a table
    raw: bytes,
    then: AfterReply,
    outcome: str,
) -> None:
    calls = RecordedApiCalls()
    reply = ByteReply(raw, then, is_slow=is_slow and len(raw) < 1000)
    async with ByteServer([reply]) as server, open_api(server.url, calls) as api:
        assert await bind(api) == outcome
    assert len(server.requests) == 1
    assert len(calls.made) == 1


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


@pytest.mark.parametrize(("raw", "then", "lines", "end"), WATCHES.values(), ids=WATCHES)
async def test_a_watch_yields_its_lines_and_reports_how_it_ended(
    raw: bytes, then: AfterReply, lines: Sequence[bytes], end: str
) -> None:
    silence = 0.5 if end == "SilentWatchError" else SOON
    reply = ByteReply(raw, then, is_slow=end == BROKEN)  # so that the head comes first
    async with ByteServer([reply]) as server, open_api(server.url) as api:
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


PACKED = gzip.compress(b"{}")
COMPRESSED = {
    "gzip": (b"gzip", PACKED, "{}"),
    "unpacked in steps": (b"gzip", gzip.compress(b"x" * 2 * UNPACKED_BYTES), "x" * 2 * UNPACKED_BYTES),
    "no more than is wanted": (b"gzip", gzip.compress(b"x" * 100 * LIST_BYTES), "x" * LIST_BYTES),
    "with more behind its end": (b"gzip", PACKED + b"more", "{}"),
    "without an end": (b"gzip", PACKED[:-1], NO_ANSWER),
    "damaged": (b"gzip", PACKED[:12] + b"\xff" + PACKED[13:], NO_ANSWER),
    "not compressed": (b"gzip", b"{}", NO_ANSWER),
    "nothing": (b"gzip", b"", NO_ANSWER),
    "another encoding": (b"br", b"{}", NO_ANSWER),
}


@pytest.mark.parametrize("is_slow", [False, True], ids=["at once", "byte by byte"])
@pytest.mark.parametrize(("encoding", "body", "outcome"), COMPRESSED.values(), ids=COMPRESSED)
async def test_a_list_may_be_compressed(encoding: bytes, body: bytes, outcome: str, *, is_slow: bool) -> None:
    raw = OK + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (encoding, len(body), body)
    async with ByteServer([ByteReply(raw, is_slow=is_slow)]) as server, open_api(server.url) as api:
        assert await list_pods(api) == outcome


async def test_a_watch_may_not_be_compressed() -> None:
    raw = OK + b"Content-Encoding: gzip\r\n" + CHUNKED
    async with ByteServer([ByteReply(raw)]) as server, open_api(server.url) as api:
        assert await read_lines(api) == ([], NO_ANSWER)
        await server.all_closed()


async def test_a_handshake_that_does_not_end_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "CONNECT_TIMEOUT_SECONDS", 0.1)
    async with ByteServer([ByteReply(BOUND)]) as server, open_api(server.url.replace("http:", "https:")) as api:
        with pytest.raises(NoAnswerError, match=r"no connection to 127\.0\.0\.1:\d+ within 0\.1 s"):
            await api.bind("default", "p", "u", "n", {}, timeout_seconds=SOON)
        await server.all_closed()


async def test_the_servers_certificate_is_checked(tmp_path: Path) -> None:
    ours, theirs = CertificateAuthority(tmp_path / "ours"), CertificateAuthority(tmp_path / "theirs")
    async with ApiServer() as api_server:
        pod = api_server.create({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}})
        async with FaultProxy(int(api_server.url.rpartition(":")[2]), tls=ours.build_server_tls()) as proxy:
            async with open_api(proxy.url, tls_authority=theirs.ca_file) as api:
                assert await bind(api) == NOT_SENT
            assert proxy.count("*", "") == 0
            async with open_api(proxy.url, tls_authority=ours.ca_file) as api:
                await api.bind("default", "p", pod["metadata"]["uid"], "n", {}, timeout_seconds=SOON)
                async with api.watch("pods", "1", server_seconds=1, silence_seconds=SOON) as stream:
                    assert b'"nodeName":"n"' in await stream.readany()


async def test_each_binding_is_sent_with_the_current_token(tmp_path: Path) -> None:
    """On one connection; after a 401 the file is read at once."""
    (tmp_path / "token").write_text("first")
    async with ByteServer([ByteReply(BOUND), ByteReply(refusal(401)), ByteReply(BOUND)]) as server:
        token = TokenFile(tmp_path / "token", clock=lambda: 0.0)
        api = Api(Credentials(Configuration(host=server.url), token), observe=RecordedApiCalls())
        for written in ("second", "second", "second"):
            await bind(api)
            (tmp_path / "token").write_text(written)
        await api.close()
    sent = [request.partition(b"Authorization: Bearer ")[2].partition(b"\r\n")[0] for request in server.requests]
    assert (server.accepted, sent) == (1, [b"first", b"first", b"second"])


async def test_a_request_has_these_lines() -> None:
    """A list may be compressed; a Status or a single event would gain nothing."""
    async with ByteServer([ByteReply(BOUND)]) as server, open_api(server.url + "/base") as api:
        await bind(api)
        await api.list_page("pods", limit=1)
        await read_lines(api)
    sent = [request.partition(b"\r\n\r\n") for request in server.requests]
    common = {
        f"Host: 127.0.0.1:{server.port}",
        "Accept: application/json",
        "User-Agent: vrampack",
        "Content-Type: application/json",
    }
    query = "watch=true&allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=60"
    wanted = [
        (
            "POST /base/api/v1/namespaces/default/pods/p/binding HTTP/1.1",
            {"Accept-Encoding: identity", f"Content-Length: {len(sent[0][2])}"},
        ),
        ("GET /base/api/v1/pods?limit=1 HTTP/1.1", {"Accept-Encoding: gzip"}),
        (f"GET /base/api/v1/pods?{query} HTTP/1.1", {"Accept-Encoding: identity"}),
    ]
    for (head, _, _), (first, lines) in zip(sent, wanted, strict=True):
        assert head.decode().split("\r\n")[0] == first
        assert sorted(head.decode().split("\r\n")[1:]) == sorted(common | lines)
    assert json.loads(sent[0][2])["metadata"]["annotations"] == {"a": "\u00fc"}


async def test_a_header_with_a_line_break_is_not_sent() -> None:
    async with ByteServer([ByteReply(BOUND)]) as server:
        api = Api(Credentials(Configuration(host=server.url)), user_agent="a\r\nX-Forged: b")
        with pytest.raises(ValueError, match="line break"):
            await bind(api)
        await api.close()
    assert server.accepted == 0


@pytest.mark.parametrize(
    "url", ["api.example:6443", "https://api.example:port", "https://[::1", "https://", f"https://{'a' * 64}.example"]
)
async def test_nothing_is_sent_to_an_invalid_address(url: str) -> None:
    async with open_api(url) as api:
        assert await bind(api) == NOT_SENT
