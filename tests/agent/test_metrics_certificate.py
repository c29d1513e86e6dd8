"""The certificate of the metrics listener: new files serve the next connection, and files that cannot be used are tried again."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.certificates import CertificateAuthority, KeyPair
from tests.support.verb_listener import Address, open_connection, read_whole_reply
from vrampack.agent.settings import MetricsTlsSettings
from vrampack.agent.status.bounded_server import BoundedServer, StatusAnswer, StatusRequest
from vrampack.http.tls_reloader import TlsReloader


class CertificateFolder:
    """The listener's files, and who signs what is in them."""

    def __init__(self, folder: Path) -> None:
        self.first = CertificateAuthority(folder / "first")
        self.second = CertificateAuthority(folder / "second")
        self.renewed = self.second.issue_pair("renewed")
        pair = self.first.issue_pair("agent")
        self.client_ca = folder / "clients.crt"
        self.client_ca.write_bytes(self.first.ca_file.read_bytes())
        self.files = MetricsTlsSettings(cert_file=pair.certificate, key_file=pair.key)
        self.pair = pair


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    return CertificateFolder(tmp_path)


@asynccontextmanager
async def serve_metrics(reloader: TlsReloader) -> AsyncIterator[Address]:
    async def answer(_: StatusRequest) -> StatusAnswer:
        return StatusAnswer(HTTPStatus.OK)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(BoundedServer(listener, answer, tls=reloader.context).run())
        try:
            yield listener.getsockname()
        finally:
            running.cancel()
            await asyncio.wait([running])


def scrape(address: Address, trusted: CertificateAuthority, shown: KeyPair | None = None) -> bytes:
    """The first line of the answer. A client that connects to an address names no server in its handshake."""
    context = ssl.create_default_context(cafile=str(trusted.ca_file))
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    with context.wrap_socket(open_connection(address), server_hostname="127.0.0.1") as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        return read_whole_reply(client).partition(b"\r\n")[0]


OK = b"HTTP/1.1 200 OK"


async def test_a_new_certificate_serves_the_next_connection_once_its_key_is_there(folder: CertificateFolder) -> None:
    reloader = TlsReloader("metrics", folder.files)
    async with serve_metrics(reloader) as address:
        folder.pair.certificate.write_bytes(folder.renewed.certificate.read_bytes())
        await reloader.reload_if_changed()
        assert await asyncio.to_thread(scrape, address, folder.first) == OK
        folder.pair.key.write_bytes(folder.renewed.key.read_bytes())
        await reloader.reload_if_changed()
        assert await asyncio.to_thread(scrape, address, folder.second) == OK


async def test_files_that_could_not_be_used_are_tried_again(
    folder: CertificateFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """Their failure may pass by itself, and then nothing on disk tells: here the key has the same inode, time and size."""
    reloader = TlsReloader("metrics", folder.files)
    key = folder.renewed.key.read_bytes()
    folder.pair.certificate.write_bytes(folder.renewed.certificate.read_bytes())
    folder.pair.key.write_bytes(b"x" * len(key))
    at = folder.pair.key.stat().st_mtime_ns
    for _ in range(2):
        await reloader.reload_if_changed()
    folder.pair.key.write_bytes(key)
    os.utime(folder.pair.key, ns=(at, at))
    async with serve_metrics(reloader) as address:
        for _ in range(2):
            await reloader.reload_if_changed()
        assert await asyncio.to_thread(scrape, address, folder.second) == OK
    assert caplog.text.count("certificate not reloaded listener=metrics") == 1


class NoThreads(ThreadPoolExecutor):
    """What a process finds that has as many threads as it may have."""

    def submit(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("can't start new thread")


async def test_a_check_for_which_no_thread_can_be_started_is_made_later(
    folder: CertificateFolder, caplog: pytest.LogCaptureFixture
) -> None:
    reloader = TlsReloader("metrics", folder.files)
    folder.pair.certificate.write_bytes(folder.renewed.certificate.read_bytes())
    folder.pair.key.write_bytes(folder.renewed.key.read_bytes())
    loop = asyncio.get_running_loop()
    loop.set_default_executor(NoThreads())
    for _ in range(3):
        await reloader.reload_if_changed()
    loop.set_default_executor(ThreadPoolExecutor())
    async with serve_metrics(reloader) as address:
        await reloader.reload_if_changed()
        assert await asyncio.to_thread(scrape, address, folder.second) == OK
    assert caplog.text.count("certificate not reloaded listener=metrics error=can't start new thread") == 1


async def test_clients_are_checked_against_the_newest_authority(folder: CertificateFolder) -> None:
    reloader = TlsReloader("metrics", folder.files.model_copy(update={"client_ca_file": folder.client_ca}))
    old, new = folder.first.issue_pair("scraper"), folder.second.issue_pair("scraper")
    async with serve_metrics(reloader) as address:
        assert await asyncio.to_thread(scrape, address, folder.first, old) == OK
        folder.client_ca.write_bytes(folder.second.ca_file.read_bytes())
        await reloader.reload_if_changed()
        assert await asyncio.to_thread(scrape, address, folder.first, new) == OK
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(scrape, address, folder.first, old)
