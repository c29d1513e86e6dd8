"""An API server behind a proxy: a tunnel for https, the whole address in each request for http."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvloop

from tests.fakes.http1 import read_head
from tests.fakes.upstream import FakeUpstream, http_reply
from tests.kube.byte_server import ByteReply, ByteServer
from tests.kube.raw_calls import BOUND, CLOSE, NOT_SENT, OK, SOON, SUCCESS, WRITTEN, bind, read_lines
from tests.support.certificates import CertificateAuthority
from vrampack.kube import http_client
from vrampack.kube.aio_client import Configuration
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials
from vrampack.kube.errors import NoAnswerError, UnreachableError

NAME = "kubernetes.default.svc"
"""In the certificates of tests; no resolver knows it."""
PAIR = "bWU6YTpiQA=="
"""`me:a:b@` as a proxy is sent it."""
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\nVia: a proxy\r\n\r\n"


@dataclass(slots=True, eq=False)
class TunnelProxy:
    """Connects every tunnel to one port, whatever server it is for."""

    target_port: int
    heads: list[str] = field(default_factory=list)
    """Of the requests for tunnels."""
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    port: int = 0

    @asynccontextmanager
    async def serve(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        """Yields its URL."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"{'https' if tls else 'http'}://me:a%3Ab%40@127.0.0.1:{self.port}"
        finally:
            server.close()
            for writer in self.open:
                writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            if head := await read_head(reader):
                self.heads.append(head.raw.decode())
                writer.write(ESTABLISHED)
                beyond, onward = await asyncio.open_connection("127.0.0.1", self.target_port)
                await asyncio.gather(_pass_on(reader, onward), _pass_on(beyond, writer))
        except OSError:
            pass  # one of the two has left
        finally:
            writer.close()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()


@asynccontextmanager
async def open_proxied(url: str, proxy: str, authority: Path | None = None, **options: object) -> AsyncIterator[Api]:
    configuration = Configuration(host=url, proxy=proxy, ssl_ca_cert=str(authority) if authority else None)
    for name, value in options.items():
        setattr(configuration, name, value)
    api = Api(Credentials(configuration))
    try:
        yield api
    finally:
        await api.close()


async def call_through_a_tunnel(folder: Path, *, is_proxy_https: bool) -> None:
    ours = CertificateAuthority(folder / "ours")
    replies = [http_reply(SUCCESS, 201)] * 2
    async with FakeUpstream(ours.build_server_tls(), replies) as server:
        await server.events.put(b"a\n")
        await server.events.put(b"")
        proxy = TunnelProxy(server.port)
        async with (
            proxy.serve(ours.build_server_tls() if is_proxy_https else None) as proxy_url,
            open_proxied(f"https://{NAME}/base", proxy_url, ours.ca_file) as api,
        ):
            assert [await bind(api), await bind(api)] == [WRITTEN, WRITTEN]
            assert await read_lines(api) == ([b"a"], "ended")
    tunnel = [f"CONNECT {NAME}:443 HTTP/1.1", f"Host: {NAME}:443", f"Proxy-Authorization: Basic {PAIR}"]
    assert proxy.heads == ["\r\n".join([*tunnel, "", ""])] * 2, "one for calls, one for the watch"
    heads = [request.partition(b"\r\n\r\n")[0] for request in server.requests]
    assert [head.split(b" ")[1].startswith(b"/base/api/v1/") for head in heads] == [True] * 3
    assert all(f"\r\nHost: {NAME}\r\n".encode() in head and b"Proxy-" not in head for head in heads)


@pytest.mark.parametrize("is_proxy_https", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_https_server_is_reached_through_a_tunnel(tmp_path: Path, new_loop: type, *, is_proxy_https: bool) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(call_through_a_tunnel(tmp_path, is_proxy_https=is_proxy_https))


async def test_the_servers_own_certificate_is_checked_behind_a_tunnel(tmp_path: Path) -> None:
    """Its authority, and its name: `tls-server-name` in place of the address."""
    ours, theirs = CertificateAuthority(tmp_path / "ours"), CertificateAuthority(tmp_path / "theirs")
    async with (
        FakeUpstream(ours.build_server_tls(), [http_reply(SUCCESS, 201)]) as server,
        TunnelProxy(server.port).serve() as proxy,
    ):
        async with open_proxied(f"https://{NAME}", proxy, theirs.ca_file) as api:
            assert await bind(api) == NOT_SENT
        async with open_proxied("https://elsewhere.example", proxy, ours.ca_file) as api:
            assert await bind(api) == NOT_SENT
        assert server.requests == []
        async with open_proxied("https://elsewhere.example", proxy, ours.ca_file, tls_server_name=NAME) as api:
            assert await bind(api) == WRITTEN


REFUSALS = {
    "credentials missing": (ByteReply(b"HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\n{}"), "the proxy answered 407"),
    "no such host": (ByteReply(b"HTTP/1.1 503 No\r\n\r\n", CLOSE), "the proxy answered 503"),
    "a redirect": (ByteReply(b"HTTP/1.1 302 No\r\nLocation: /\r\n\r\n"), "the proxy answered 302"),
    "closed": (ByteReply(b"", CLOSE), "closed before the answer"),
    "not HTTP": (ByteReply(b"SSH-2.0\r\n"), "not HTTP"),
    "closed instead of TLS": (ByteReply(ESTABLISHED, CLOSE), "create pods/binding: "),
}


@pytest.mark.parametrize(("reply", "text"), REFUSALS.values(), ids=REFUSALS)
async def test_a_tunnel_that_does_not_open_counts_as_unanswered(reply: ByteReply, text: str) -> None:
    await bind_in_vain(reply, text)


@pytest.mark.parametrize("raw", [b"", ESTABLISHED + OK], ids=["nothing", "an answer instead of TLS"])
async def test_a_tunnel_that_takes_too_long_counts_as_unanswered(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "CONNECT_TIMEOUT_SECONDS", 0.1)
    await bind_in_vain(ByteReply(raw), r"no connection to 127\.0\.0\.1:\d+ within 0\.1 s")


async def bind_in_vain(reply: ByteReply, text: str) -> None:
    """Nothing is left of a tunnel that does not open: no connection, no place taken in the pool."""
    async with (
        ByteServer([reply]) as proxy,
        open_proxied(f"https://{NAME}", proxy.url, connection_pool_maxsize=1) as api,
    ):
        for _ in range(2):
            with pytest.raises(NoAnswerError, match=text):
                await api.bind("default", "p", "u", "n", {}, timeout_seconds=SOON)
            await proxy.all_closed()
    assert proxy.accepted == 2


async def test_a_cancelled_call_leaves_no_half_open_tunnel() -> None:
    async with (
        ByteServer([ByteReply(b"")]) as proxy,
        open_proxied(f"https://{NAME}", proxy.url, connection_pool_maxsize=1) as api,
    ):
        for times in (1, 2):
            call = asyncio.create_task(bind(api))
            await proxy.asked(times)
            call.cancel()
            await asyncio.wait([call])
            await proxy.all_closed()


async def test_a_refused_connection_to_the_proxy_is_told_from_others() -> None:
    async with ByteServer([ByteReply(b"")]) as proxy:
        url = proxy.url
    async with open_proxied(f"https://{NAME}", url) as api:
        with pytest.raises(UnreachableError):
            async with api.watch("pods", "1", server_seconds=60, silence_seconds=SOON):
                pass


async def test_requests_to_an_http_server_are_sent_to_the_proxy() -> None:
    async with ByteServer([ByteReply(BOUND)]) as proxy:
        url = proxy.url.replace("//", "//me:a%3Ab%40@")
        async with open_proxied("http://api.example:8080/base", url) as api:
            assert await bind(api) == WRITTEN
    (request,) = proxy.requests
    path = "/base/api/v1/namespaces/default/pods/p/binding"
    assert request.startswith(f"POST http://api.example:8080{path} HTTP/1.1\r\nHost: api.example:8080\r\n".encode())
    assert f"\r\nProxy-Authorization: Basic {PAIR}\r\n".encode() in request


@pytest.mark.parametrize("url", ["socks5://me:secret@proxy:1080", "proxy:3128", "http://me:secret@", "http://proxy:0"])
async def test_an_invalid_address_of_a_proxy_is_named_without_its_password(url: str) -> None:
    async with open_proxied(f"https://{NAME}", url) as api:
        with pytest.raises(NoAnswerError, match=r"proxy .*: not a URL as https://HOST:PORT") as caught:
            await api.list_page("pods", limit=1)
    assert "secret" not in str(caught.value)
    assert url.rpartition("@")[2] in str(caught.value)
