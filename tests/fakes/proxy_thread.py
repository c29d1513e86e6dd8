"""The fault proxy for tests that are not coroutines: the same methods, on a loop in a thread of its own."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from threading import Thread
from typing import Any, Self, TypeVar

from tests.fakes.exchanges import Exchange
from tests.fakes.faults import FaultBuilder, ProxyRule
from tests.fakes.proxy import CLOSING_TURNS, WITHIN_SECONDS, FaultProxy

T = TypeVar("T")


class FaultProxyThread:
    """A context manager: the proxy listens inside. Every method calls that of `FaultProxy` and waits for it."""

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
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="proxy")
        self._proxy = FaultProxy(
            upstream_port,
            upstream_host=upstream_host,
            upstream_tls=upstream_tls,
            tls=tls,
            port=port,
            transcript=transcript,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._stop()

    @property
    def port(self) -> int:
        return self._proxy.port

    @property
    def url(self) -> str:
        return self._proxy.url

    def start(self) -> None:
        self._wait(self._proxy.start())

    def close(self) -> None:
        self._wait(self._proxy.close())

    def when(self, method: str, pattern: str, *, body: bytes | None = None) -> FaultBuilder:
        book = self._proxy.when(method, pattern, body=body)
        return FaultBuilder(method, pattern, lambda rule: self._do(lambda: book.register(rule)), body)

    def clear(self) -> None:
        self._do(self._proxy.clear)

    def count(self, method: str, pattern: str) -> int:
        return self._do(lambda: self._proxy.count(method, pattern))

    def matching(self, method: str, pattern: str) -> list[Exchange]:
        return self._do(lambda: self._proxy.matching(method, pattern))

    def seen(self, method: str, pattern: str, times: int = 1, *, within: float = WITHIN_SECONDS) -> list[Exchange]:
        return self._wait(self._proxy.seen(method, pattern, times, within=within))

    def finished(self, method: str, pattern: str, times: int = 1, *, within: float = WITHIN_SECONDS) -> list[Exchange]:
        return self._wait(self._proxy.finished(method, pattern, times, within=within))

    def reached(self, rule: ProxyRule, times: int = 1, *, within: float = WITHIN_SECONDS) -> None:
        self._wait(self._proxy.reached(rule, times, within=within))

    def settled(self, *, within: float = WITHIN_SECONDS) -> None:
        self._wait(self._proxy.settled(within=within))

    def freeze_watches(self, pattern: str = "") -> None:
        self._do(lambda: self._proxy.freeze_watches(pattern))

    def thaw_watches(self) -> None:
        self._do(self._proxy.thaw_watches)

    def cut_watches(self, pattern: str = "") -> int:
        return self._do(lambda: self._proxy.cut_watches(pattern))

    def expire_watches(self, pattern: str = "") -> int:
        return self._do(lambda: self._proxy.expire_watches(pattern))

    def _do(self, step: Callable[[], T]) -> T:
        async def stepping() -> T:
            return step()

        return self._wait(stepping())

    def _wait(
        self, work: Coroutine[Any, Any, T]
    ) -> T:  # Any: what a coroutine yields to its loop is the loop's business
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._wait(_end_handshakes())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_handshakes() -> None:
    """Those under way are tasks of the loop's own: stopped with it, they would leave their connections open."""
    under_way = asyncio.all_tasks() - {asyncio.current_task()}
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
    for _ in range(CLOSING_TURNS):
        await asyncio.sleep(0)
