"""A canned API server: it serves prebuilt bytes over loopback, and counts the calls it gets.

So a benchmark measures the extender alone. Lists come in pages; watches stay open and carry the lines given to `push_line`;
every write succeeds and changes nothing.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

LOOPBACK = "127.0.0.1"
BOOKMARK_SECONDS = 30.0
"""The extender abandons a watch that is silent for 75 s."""
WATCH_SECONDS = 10.0
"""The watch follows the list at once, but an extender may be ready a moment before it."""
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_TOKEN = re.compile(r"continue=(\d+)")
_CREATED = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
_WATCH_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class CannedApiServer:
    """Runs in its own thread: `with CannedApiServer({"pods": pages, "nodes": pages}) as api:`."""

    def __init__(self, pages: Mapping[str, Sequence[bytes]]) -> None:
        self._pages = {resource: [_encode_response(200, page) for page in given] for resource, given in pages.items()}
        self._watched = {resource: asyncio.Event() for resource in pages}
        self._watches: dict[str, asyncio.StreamWriter] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="canned-api")
        self.calls: Counter[str] = Counter()
        """Counts of lists, of watches, and of all else by method and last part of the path, e.g. `POST binding`."""
        self.first_call_at = 0.0
        """When the first call arrived, by `time.monotonic`."""
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def push_line(self, resource: str, line: bytes) -> None:
        """Send a line on the resource's watch, as soon as there is one; it has been sent when this returns."""
        asyncio.run_coroutine_threadsafe(self._push_line(resource, line), self._loop).result(WATCH_SECONDS)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve_connection, LOOPBACK, 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        self._bookmarks = asyncio.create_task(self._send_bookmarks())

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _push_line(self, resource: str, line: bytes) -> None:
        await self._watched[resource].wait()
        self._watches[resource].write(b"%x\r\n%b\r\n" % (len(line), line))

    async def _send_bookmarks(self) -> None:
        while True:
            await asyncio.sleep(BOOKMARK_SECONDS)
            for resource in self._watches:
                await self._push_line(resource, b'{"type":"BOOKMARK","object":{"metadata":{}}}\n')

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.first_call_at = self.first_call_at or time.monotonic()
                length = _LENGTH.search(head)
                await reader.readexactly(int(length[1]) if length else 0)
                method, target, _ = head.decode().split(" ", 2)
                self._answer(method, target, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the extender has ended
        finally:
            writer.close()

    def _answer(self, method: str, target: str, writer: asyncio.StreamWriter) -> None:
        path, _, query = target.partition("?")
        resource = path.rpartition("/")[2]
        if method == "GET" and "watch=true" in query:
            self.calls["watch"] += 1
            self._watches[resource] = writer
            writer.write(_WATCH_HEAD)
            self._watched[resource].set()
        elif method == "GET" and path == f"/api/v1/{resource}":
            self.calls["list"] += 1
            token = _TOKEN.search(query)
            writer.write(self._pages[resource][int(token[1]) if token else 0])
        else:
            self.calls[f"{method} {resource}"] += 1
            writer.write(_encode_response(201, _CREATED) if method == "POST" else _encode_response(404, b"{}"))


def _encode_response(status: int, body: bytes) -> bytes:
    head = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body
