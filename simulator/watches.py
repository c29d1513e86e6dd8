"""Watches: each follows the store's log from its own version on, and tells its client one JSON line per change.

    log --changes since--> [frozen?] --> line --> client        ends: time-out, cut, 410 as an ERROR line
                     bookmark due  -^

A watch that falls behind what the log still holds is told 410 and ended, as by the real server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from simulator.errors import StatusError
from simulator.kinds import Kind, Object
from simulator.store import Store

BOOKMARK_SECONDS = 60.0
"""The real server's period. It tells the version of all kinds together, so a quiet kind has bookmarks too."""
LAST_BOOKMARK_SECONDS = 2.0
"""How long before its end a watch gets a last bookmark, as from the real server."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client asked to watch. Version 0 begins with an ADDED for everything that is there."""

    kind: Kind
    namespace: str | None
    version: int
    timeout_seconds: float
    wants_bookmarks: bool


class Watch:
    """One open watch. `write` sends bytes to its client, `abort` tears its connection."""

    def __init__(self, wish: Wish, write: Callable[[bytes], Awaitable[None]], abort: Callable[[], None]) -> None:
        self.wish = wish
        self.abort = abort
        self.wake = asyncio.Event()
        self.cursor = wish.version
        self.is_bookmark_due = False
        self._write = write

    async def tell(self, type_: str, item: Object) -> None:
        await self._write(msgspec.json.encode({"type": type_, "object": item}) + b"\n")

    async def tell_bookmark(self, version: int) -> None:
        body = {"metadata": {"resourceVersion": str(version)}, "spec": {}, "status": {}}
        await self.tell("BOOKMARK", self.wish.kind.tagged(body))


class Watches:
    """All open watches of one server."""

    def __init__(self, store: Store, *, bookmark_seconds: float = BOOKMARK_SECONDS) -> None:
        self._store = store
        self._bookmark_seconds = bookmark_seconds
        self._open: set[Watch] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        store.subscribe(self._wake_all)

    def freeze(self) -> None:
        """Keep the connections and send nothing, not even their end: a stalled network."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def cut(self) -> None:
        """Tear every connection in the middle of its answer."""
        for watch in list(self._open):
            watch.abort()

    def send_bookmarks(self) -> None:
        """Have every watch that wants bookmarks told the newest version of all, as after a progress report of etcd."""
        for watch in self._open:
            watch.is_bookmark_due = watch.wish.wants_bookmarks
        self._wake_all()

    async def run(self, watch: Watch) -> None:
        """Serve `watch` until its time is over. Cancelled when its client goes away."""
        self._open.add(watch)
        try:
            await self._tell_present(watch)
            await self._follow(watch)
        except StatusError as refusal:
            await watch.tell("ERROR", refusal.status())
        finally:
            self._open.discard(watch)

    async def _tell_present(self, watch: Watch) -> None:
        if watch.wish.version:
            return
        await self._flowing.wait()
        page = self._store.page(watch.wish.kind, watch.wish.namespace)
        watch.cursor = page.version
        for item in page.items:
            await watch.tell("ADDED", watch.wish.kind.tagged(item))

    async def _follow(self, watch: Watch) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + watch.wish.timeout_seconds
        bookmark_at = self._next_bookmark(loop.time(), end)
        while loop.time() < end:
            watch.wake.clear()
            await self._tell_changes(watch)
            if loop.time() >= bookmark_at:
                bookmark_at = self._next_bookmark(loop.time(), end)
                watch.is_bookmark_due = watch.wish.wants_bookmarks
            if watch.is_bookmark_due:
                watch.is_bookmark_due = False
                await watch.tell_bookmark(watch.cursor)
            await _woken(watch.wake, until=min(end, bookmark_at))
        await self._flowing.wait()

    async def _tell_changes(self, watch: Watch) -> None:
        await self._flowing.wait()
        changes = self._store.changes_since(watch.cursor, watch.wish.kind, watch.wish.namespace)
        # Changes of other kinds are seen too: a quiet watch must not look as if it had fallen behind.
        watch.cursor = max(watch.cursor, self._store.version)
        for change in changes:
            await watch.tell(change.type, watch.wish.kind.tagged(change.item))
            await self._flowing.wait()

    def _next_bookmark(self, now: float, end: float) -> float:
        last = end - LAST_BOOKMARK_SECONDS
        regular = now + self._bookmark_seconds
        return min(regular, last) if last > now else regular

    def _wake_all(self) -> None:
        for watch in self._open:
            watch.wake.set()


async def _woken(wake: asyncio.Event, *, until: float) -> None:
    try:
        async with asyncio.timeout_at(until):
            await wake.wait()
    except TimeoutError:
        return
