"""What one connection may cost: a small head, so much time, one request; and how the rest are answered."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.verb_listener import is_cut, open_connection, read_whole_reply
from vrampack.agent.status import bounded_server
from vrampack.agent.status.bounded_server import (
    BoundedServer,
    StatusAnswer,
    StatusRequest,
    explain_status,
)
from vrampack.http.open_connections import ConnectionLimits

Address = tuple[str, int]
GET = b"GET /page?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"


async def echo_path(request: StatusRequest) -> StatusAnswer:
    return explain_status(HTTPStatus.OK, request.path)


@asynccontextmanager
async def run_server(*, total: int = 8, per_peer: int = 8, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    limits = ConnectionLimits(total=total, per_peer=per_peer, keep_alive_seconds=0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = BoundedServer(listener, echo_path, limits=limits, tls=tls)
        running = asyncio.create_task(server.run())
        try:
            yield listener.getsockname()
        finally:
            running.cancel()
            await asyncio.wait([running])


def exchange(address: Address, sent: bytes) -> bytes:
    with open_connection(address) as client:
        client.sendall(sent)
        answer = read_whole_reply(client)
        assert is_cut(client)
        return answer


SAID = {
    "a page": (GET, b"HTTP/1.1 200 OK", b"/page\n"),
    "only its head": (GET.replace(b"GET", b"HEAD"), b"HTTP/1.1 200 OK", b""),
    "another method": (GET.replace(b"GET", b"POST"), b"HTTP/1.1 405 Method Not Allowed", b"Method Not Allowed\n"),
    "a body": (
        GET.replace(b"Host: a", b"Content-Length: 9"),
        b"HTTP/1.1 413 Request Entity Too Large",
        b"Request Entity Too Large\n",
    ),
    "no HTTP": (b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 400 Bad Request", b"Bad Request\n"),
    "an upgrade": (
        GET.replace(b"Host: a", b"Upgrade: h2c\r\nConnection: Upgrade"),
        b"HTTP/1.1 200 OK",
        b"/page\n",
    ),
}


@pytest.mark.parametrize(("sent", "line", "body"), SAID.values(), ids=SAID)
async def test_one_request_is_answered_and_the_connection_closed(sent: bytes, line: bytes, body: bytes) -> None:
    async with run_server() as address:
        if b"HEAD" in sent:
            with open_connection(address) as client:
                client.sendall(sent)
                answer = await asyncio.to_thread(client.makefile("rb").read)
        else:
            answer = await asyncio.to_thread(exchange, address, sent)
    assert answer.split(b"\r\n")[0] == line
    assert b"\r\nConnection: close\r\n" in answer
    assert answer.partition(b"\r\n\r\n")[2] == body


async def test_oversized_request_head_is_refused() -> None:
    async with run_server() as address:
        long = b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * bounded_server.MAX_HEAD_BYTES
        with open_connection(address) as client:
            client.sendall(long)
            assert (await asyncio.to_thread(client.recv, 20)).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("sent", [b"", GET[:-1]], ids=["nothing", "half a request"])
async def test_a_request_head_must_arrive_in_time(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(bounded_server, "HEAD_SECONDS", 0.05)
    async with run_server() as address:
        with open_connection(address) as client:
            client.sendall(sent)
            assert await asyncio.to_thread(is_cut, client)


async def test_the_newest_connection_is_answered_while_others_are_held_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "HEAD_SECONDS", 60)  # so that no deadline cuts the others
    async with run_server(total=3) as address:
        crowd = [open_connection(address) for _ in range(5)]
        try:
            for client in crowd:
                client.sendall(GET[:-1])
            assert await asyncio.to_thread(is_cut, crowd[0])
            assert (await asyncio.to_thread(exchange, address, GET)).endswith(b"/page\n")
        finally:
            for client in crowd:
                client.close()


async def test_a_half_sent_handshake_counts_as_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "HEAD_SECONDS", 60)
    authority = CertificateAuthority(tmp_path / "ca")
    async with run_server(total=2, tls=authority.build_server_tls()) as address:
        crowd = [open_connection(address) for _ in range(4)]
        try:
            for client in crowd:
                client.sendall(b"\x16\x03\x01\x02")
            assert await asyncio.to_thread(is_cut, crowd[0])
            assert await asyncio.to_thread(ask_tls, address, authority.ca_file) == b"/page\n"
        finally:
            for client in crowd:
                client.close()


def ask_tls(address: Address, authority: Path) -> bytes:
    context = ssl.create_default_context(cafile=str(authority))
    with context.wrap_socket(open_connection(address), server_hostname="127.0.0.1") as client:
        client.sendall(GET)
        return read_whole_reply(client).partition(b"\r\n\r\n")[2]
