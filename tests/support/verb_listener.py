"""A real listener of the service, on the event loop it runs on in production, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop
from starlette.types import ASGIApp

from extender.http.server import CALLED_BY_SCHEDULERS, build_server
from extender.http.uvicorn_protocol import PacedProtocol
from vrampack.http.listener import open_listener
from vrampack.http.open_connections import ConnectionLimits

Address = tuple[str, int]


def ignore_fault(during: str) -> None:
    """For verbs whose faults the test sees in their answers."""


@contextmanager
def run_listener(
    app: ASGIApp,
    *,
    receive_seconds: float,
    tls: ssl.SSLContext | None = None,
    protocol: type[PacedProtocol] = PacedProtocol,
    limits: ConnectionLimits = CALLED_BY_SCHEDULERS,
) -> Iterator[Address]:
    """Serve `app` on a free port of loopback until the block ends."""
    listener = open_listener("127.0.0.1", 0)
    address: Address = listener.getsockname()
    server = build_server(app, tls=tls, receive_seconds=receive_seconds, protocol=protocol, limits=limits)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve(sockets=[listener]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        assert not thread.is_alive()


def open_connection(address: Address) -> socket.socket:
    """A plain connection; what it waits for comes within seconds or is a failure."""
    client = socket.create_connection(address, timeout=10)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def build_request(path: str, body: bytes, *, method: str = "POST") -> bytes:
    """One request as a scheduler writes it."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_reply(client: socket.socket) -> tuple[int, bytes]:
    """Status and body of one reply; an error when the line is cut before its end."""
    head, _, body = read_whole_reply(client).partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


def read_whole_reply(client: socket.socket) -> bytes:
    """One reply as it was sent; an error when the line is cut before its end."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _receive_some(client)
    head, separator, body = received.partition(b"\r\n\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(headers[b"content-length"]):
        body += _receive_some(client)
    return head + separator + body


def is_cut(client: socket.socket) -> bool:
    """Wait for the other side to close; False when it says something, or nothing for ten seconds."""
    try:
        return client.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True
    except TimeoutError:
        return False


def _receive_some(client: socket.socket) -> bytes:
    received = client.recv(65_536)
    if not received:
        raise ConnectionError("cut before the end of the reply")
    return received
