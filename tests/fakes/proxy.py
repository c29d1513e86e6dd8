"""A proxy that can fail: between extender and API server, or between scheduler and extender.

Everything is forwarded byte for byte, watches as they are flushed, over one upstream connection per caller's connection.
It can be told to fail (`faults.py`), counts what passes, and writes a transcript of verb calls (`transcript.py`).

    async with FaultProxy(api_port, tls=ours, upstream_tls=trust) as proxy:
        lost = proxy.when("POST", r"/binding$").cut_after_write(times=1)
        ...
        await proxy.reached(lost)
        assert proxy.count("POST", r"/binding$") == 1

Where it ends TLS, a caller's client certificate stops here: use tokens, or give `upstream_tls` the certificate. It offers
no HTTP/2 and no upgrades, and treats a caller that half-closes as one that left.
"""

import asyncio
import re
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

from tests.fakes.exchanges import Exchange, ExchangeLog
from tests.fakes.faults import FaultBuilder, ProxyRule
from tests.fakes.http1 import HEAD_LIMIT
from tests.fakes.relay import EXPIRED, RelayConnection, Streams

WITHIN_SECONDS = 10.0
"""How long to wait for something a test expects: longer than any deadline of the extender."""


CLOSING_TURNS = 4
"""Turns of the loop after which every aborted transport, TLS over TCP too, has reported that it is closed."""


class FaultProxy:
    """Listens on loopback and forwards to `upstream_port`; `port` 0 takes any."""

    def __init__(
        self,
        upstream_port: int,
        *,
        upstream_host: str = "127.0.0.1",
        upstream_tls: ssl.SSLContext | None = None,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
        transcript: Path | None = None,
    ) -> None:
        self.port = port
        self._tls = tls
        self._transcript = transcript
        self._dial = partial(asyncio.open_connection, upstream_host, upstream_port, ssl=upstream_tls, limit=HEAD_LIMIT)
        self._book = ExchangeLog()
        self._server: asyncio.Server | None = None
        self._is_open = False
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Accept connections; after `close` again on the same port, as a server that came back."""
        loop = asyncio.get_running_loop()
        self._is_open = True
        self._server = await loop.create_server(
            lambda: _Caller(self._accept, loop), "127.0.0.1", self.port, ssl=self._tls, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Refuse connections and cut those there are, as a server that went away."""
        self._is_open = False
        if self._server:
            self._server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)

    def when(self, method: str, pattern: str, *, body: bytes | None = None) -> FaultBuilder:
        """Requests of a method (`*`: any) whose path and query match, and their body if given; a method of the result says what happens to them."""
        return FaultBuilder(method, pattern, self._book.add, body)

    def clear(self) -> None:
        """End all faults: rules stop, what they hold goes on, frozen watches thaw."""
        self._book.frozen.clear()
        self._book.clear()

    def count(self, method: str, pattern: str) -> int:
        """How many requests of this method and pattern have arrived."""
        return len(self.matching(method, pattern))

    def matching(self, method: str, pattern: str) -> list[Exchange]:
        """Those requests so far, in the order in which they arrived."""
        return self._book.matching(method, pattern)

    async def seen(
        self, method: str, pattern: str, times: int = 1, *, within: float = WITHIN_SECONDS
    ) -> list[Exchange]:
        """Wait until `times` of those requests have arrived."""
        what = f"{times} of {method} {pattern} to arrive"
        await self._expect(lambda: self.count(method, pattern) >= times, what, within)
        return self.matching(method, pattern)

    async def finished(
        self, method: str, pattern: str, times: int = 1, *, within: float = WITHIN_SECONDS
    ) -> list[Exchange]:
        """Wait until `times` of those requests are over, answered or not."""
        what = f"{times} of {method} {pattern} to be over"
        await self._expect(lambda: len(self._over(method, pattern)) >= times, what, within)
        return self._over(method, pattern)

    async def reached(self, rule: ProxyRule, times: int = 1, *, within: float = WITHIN_SECONDS) -> None:
        """Wait until a fault has happened `times` times: the request is held, answered or cut now."""
        await self._expect(lambda: rule.hits >= times, f"{rule} to be reached {times} times", within)

    async def settled(self, *, within: float = WITHIN_SECONDS) -> None:
        """Wait until nothing but watches is in flight; the transcript is then up to date."""
        await self._expect(lambda: all(e.is_watch for e in self._book.in_flight), "requests to end", within)

    def freeze_watches(self, pattern: str = "") -> None:
        """Stop forwarding events of watches, new ones too; their connections stay."""
        self._book.frozen.append(re.compile(pattern))

    def thaw_watches(self) -> None:
        """Forward everything that frozen watches have held back."""
        self._book.frozen.clear()
        self._book.notify()

    def cut_watches(self, pattern: str = "") -> int:
        """Close the connections of all watches; returns how many there were."""
        watches = self._watches(pattern)
        for watch in watches:
            watch.stop("cut")
        return len(watches)

    def expire_watches(self, pattern: str = "") -> int:
        """End all watches with an ERROR event of code 410, after the event that is on its way; how many there were."""
        watches = self._watches(pattern)
        for watch in watches:
            watch.is_expired = True
            if watch.is_between_events:
                watch.stop(EXPIRED)
        return len(watches)

    async def _expect(self, holds: Callable[[], bool], what: str, within: float) -> None:
        try:
            await self._book.wait_until(holds, within=within)
        except TimeoutError as error:
            lately = [f"{e.method} {e.target} {e.outcome or 'in flight'}" for e in self._book.exchanges[-10:]]
            raise TimeoutError(f"waited {within} s for {what}; the last requests: {lately}") from error

    def _watches(self, pattern: str) -> list[Exchange]:
        return [e for e in self._book.in_flight if e.is_watch and re.search(pattern, e.target)]

    def _over(self, method: str, pattern: str) -> list[Exchange]:
        return [e for e in self.matching(method, pattern) if e not in self._book.in_flight]

    def _accept(self, caller: Streams, left: asyncio.Event) -> None:
        if not self._is_open:  # its handshake was under way when the listener closed
            caller[1].transport.abort()
            return
        connection = RelayConnection(caller, left, dial=self._dial, book=self._book, transcript=self._transcript)
        task = asyncio.get_running_loop().create_task(connection.serve())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)


class _Caller(asyncio.StreamReaderProtocol):
    """Streams that also tell when the other side left while no read is pending."""

    def __init__(self, accept: Callable[[Streams, asyncio.Event], None], loop: asyncio.AbstractEventLoop) -> None:
        left = self._has_left = asyncio.Event()
        reader = asyncio.StreamReader(limit=HEAD_LIMIT, loop=loop)
        super().__init__(reader, lambda r, w: accept((r, w), left), loop=loop)

    def eof_received(self) -> bool | None:
        self._has_left.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_left.set()
        super().connection_lost(exc)
