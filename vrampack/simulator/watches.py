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

from vrampack.simulator.errors import StatusError
from vrampack.simulator.forms import Form
from vrampack.simulator.kinds import Kind, Object
from vrampack.simulator.selectors import Selector
from vrampack.simulator.store import Change, Store

BOOKMARK_SECONDS = 60.0
"""The real server's period. It tells the version of all kinds together, so a quiet kind has bookmarks too."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark after which a watch tells changes."""
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
    wants_initial: bool
    """Whether it begins with everything that is there, and then says so, whatever its version."""
    selector: Selector
    form: Form

    def told(self, change: Change) -> tuple[str, Object] | None:
        """The change as it looks through the selector: what comes to match is added, what ceases to is deleted."""
        was = change.before is not None and self.selector.matches(change.before)
        stays = change.type != "DELETED" and self.selector.matches(change.item)
        if stays:
            return ("MODIFIED" if was else "ADDED"), change.item
        if not was or change.before is None:
            return None
        if change.type == "DELETED":
            return "DELETED", change.item
        metadata = {**change.before["metadata"], "resourceVersion": str(change.version)}
        return "DELETED", {**change.before, "metadata": metadata}


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
        await self._send(type_, self.wish.form.one(item))

    async def tell_bookmark(self, version: int, *, ends_initial: bool = False) -> None:
        metadata: Object = {"resourceVersion": str(version)}
        if ends_initial:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        await self.tell("BOOKMARK", {"metadata": metadata, "spec": {}, "status": {}})

    async def tell_refusal(self, refusal: StatusError) -> None:
        await self._send("ERROR", refusal.status())

    async def _send(self, type_: str, told: Object) -> None:
        await self._write(msgspec.json.encode({"type": type_, "object": told}) + b"\n")


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
            await watch.tell_refusal(refusal)
        finally:
            self._open.discard(watch)

    async def _tell_present(self, watch: Watch) -> None:
        wish = watch.wish
        if wish.version and not wish.wants_initial:
            return
        await self._flowing.wait()
        page = self._store.page(wish.kind, wish.namespace, selector=wish.selector)
        watch.cursor = page.version
        for item in page.items:
            await watch.tell("ADDED", item)
        if wish.wants_bookmarks:
            await watch.tell_bookmark(page.version, ends_initial=True)

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
            if told := watch.wish.told(change):
                await watch.tell(*told)
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
