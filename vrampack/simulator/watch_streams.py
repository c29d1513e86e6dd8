"""Watch streams: each follows the store's log from its own version, and sends its client one JSON line per change.

    log --changes since--> [frozen?] --> line --> client        ends: time-out, cut, 410 as an ERROR line
                     bookmark due  -^

A watch that falls behind the oldest change in the log gets 410 and is ended, as by the real server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from vrampack.simulator.content_negotiation import Representation
from vrampack.simulator.errors import StatusError
from vrampack.simulator.object_store import ObjectStore, StoreChange
from vrampack.simulator.resource_kinds import Object, ResourceKind
from vrampack.simulator.selectors import ObjectSelector

BOOKMARK_SECONDS = 60.0
"""The real server's period. Bookmarks have the version over all kinds, so a quiet kind gets them too."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the initial events."""
LAST_BOOKMARK_SECONDS = 2.0
"""How long before its end a watch gets a last bookmark, as from the real server."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What a client asked to watch. Version 0 begins with an ADDED for every existing object."""

    kind: ResourceKind
    namespace: str | None
    version: int
    timeout_seconds: float
    wants_bookmarks: bool
    wants_initial_events: bool
    """Whether it begins with all existing objects and a bookmark after them, whatever its version."""
    selector: ObjectSelector
    representation: Representation

    def select_event(self, change: StoreChange) -> tuple[str, Object] | None:
        """The change as the selector sees it: an object that starts to match is added, one that stops matching is deleted."""
        was = change.previous_item is not None and self.selector.matches(change.previous_item)
        stays = change.change_type != "DELETED" and self.selector.matches(change.item)
        if stays:
            return ("MODIFIED" if was else "ADDED"), change.item
        if not was or change.previous_item is None:
            return None
        if change.change_type == "DELETED":
            return "DELETED", change.item
        metadata = {**change.previous_item["metadata"], "resourceVersion": str(change.version)}
        return "DELETED", {**change.previous_item, "metadata": metadata}


class WatchStream:
    """One open watch. `write` sends bytes to its client, `abort_connection` cuts its connection."""

    def __init__(
        self, request: WatchRequest, write: Callable[[bytes], Awaitable[None]], abort_connection: Callable[[], None]
    ) -> None:
        self.request = request
        self.abort_connection = abort_connection
        self.wake_event = asyncio.Event()
        self.sent_version = request.version
        self.is_bookmark_due = False
        self._write = write

    async def send_event(self, type_: str, item: Object) -> None:
        await self._send_line(type_, self.request.representation.render_object(item))

    async def send_bookmark(self, version: int, *, ends_initial_events: bool = False) -> None:
        metadata: Object = {"resourceVersion": str(version)}
        if ends_initial_events:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        await self.send_event("BOOKMARK", {"metadata": metadata, "spec": {}, "status": {}})

    async def send_error(self, refusal: StatusError) -> None:
        await self._send_line("ERROR", refusal.build_status())

    async def _send_line(self, type_: str, told: Object) -> None:
        await self._write(msgspec.json.encode({"type": type_, "object": told}) + b"\n")


class WatchStreams:
    """All open watches of one server."""

    def __init__(self, store: ObjectStore, *, bookmark_seconds: float = BOOKMARK_SECONDS) -> None:
        self._store = store
        self._bookmark_seconds = bookmark_seconds
        self._open_streams: set[WatchStream] = set()
        self._thawed = asyncio.Event()
        self._thawed.set()
        store.subscribe(self._wake_all)

    def freeze_all(self) -> None:
        """Keep the connections but send nothing, not even their end, like a stalled network."""
        self._thawed.clear()

    def thaw_all(self) -> None:
        self._thawed.set()

    def abort_all(self) -> None:
        """Cut every connection in the middle of its answer."""
        for watch in list(self._open_streams):
            watch.abort_connection()

    def send_bookmarks(self) -> None:
        """Send the newest version to every watch that wants bookmarks, as after a progress notification of etcd."""
        for watch in self._open_streams:
            watch.is_bookmark_due = watch.request.wants_bookmarks
        self._wake_all()

    async def serve_watch(self, watch: WatchStream) -> None:
        """Serve `watch` until its time is over. It is cancelled when its client disconnects."""
        self._open_streams.add(watch)
        try:
            await self._send_present_objects(watch)
            await self._follow_log(watch)
        except StatusError as refusal:
            await watch.send_error(refusal)
        finally:
            self._open_streams.discard(watch)

    async def _send_present_objects(self, watch: WatchStream) -> None:
        wish = watch.request
        if wish.version and not wish.wants_initial_events:
            return
        await self._thawed.wait()
        page = self._store.read_page(wish.kind, wish.namespace, selector=wish.selector)
        watch.sent_version = page.version
        for item in page.items:
            await watch.send_event("ADDED", item)
        if wish.wants_bookmarks:
            await watch.send_bookmark(page.version, ends_initial_events=True)

    async def _follow_log(self, watch: WatchStream) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + watch.request.timeout_seconds
        bookmark_at = self._schedule_bookmark(loop.time(), end)
        while loop.time() < end:
            watch.wake_event.clear()
            await self._send_changes(watch)
            if loop.time() >= bookmark_at:
                bookmark_at = self._schedule_bookmark(loop.time(), end)
                watch.is_bookmark_due = watch.request.wants_bookmarks
            if watch.is_bookmark_due:
                watch.is_bookmark_due = False
                await watch.send_bookmark(watch.sent_version)
            await _wait_for_wake(watch.wake_event, until=min(end, bookmark_at))
        await self._thawed.wait()

    async def _send_changes(self, watch: WatchStream) -> None:
        await self._thawed.wait()
        changes = self._store.read_changes_since(watch.sent_version, watch.request.kind, watch.request.namespace)
        # Changes of other kinds are seen too: a quiet watch must not look as if it had fallen behind.
        watch.sent_version = max(watch.sent_version, self._store.version)
        for change in changes:
            if told := watch.request.select_event(change):
                await watch.send_event(*told)
                await self._thawed.wait()

    def _schedule_bookmark(self, now: float, end: float) -> float:
        last = end - LAST_BOOKMARK_SECONDS
        regular = now + self._bookmark_seconds
        return min(regular, last) if last > now else regular

    def _wake_all(self) -> None:
        for watch in self._open_streams:
            watch.wake_event.set()


async def _wait_for_wake(wake: asyncio.Event, *, until: float) -> None:
    try:
        async with asyncio.timeout_at(until):
            await wake.wait()
    except TimeoutError:
        return
