"""Keeps a sink in step with all objects of one kind: list, then watch, without end.

    list (in pages) ------> watch --> event, bookmark --> watch ...
         ^                    |  ended by the server, cut, or silent after an event: watch again from the last version
         |                    |  429, or conn. refused: back off, watch again from the last version
         '--------------------'  any other error, silence from the start, or three watches in a row without an event

Nothing is lost between the list and the watch, because the watch begins at the list's resourceVersion. If a server
answers a watch with an error, or with nothing, that version is dropped: the server may have been restored from a backup
and not have reached it yet, or fail whenever it is asked for this version. A list always works, but is expensive for the
API server, so all lists share one back-off (`retry_backoff.py`). client-go does the same. Where thousands of agents lose
their watches at once, each waits a random time before it lists again (`relist_spread_seconds`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Generic, Protocol, TypeVar

import msgspec

from vrampack.kube.answers import limit_retry_after
from vrampack.kube.api_caller import Resource
from vrampack.kube.client import Api
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.errors import (
    BrokenWatchError,
    ForeignAnswerError,
    NoAnswerError,
    RefusedError,
    ResourceExpiredError,
    SilentWatchError,
    UnreachableError,
)
from vrampack.kube.list_page import ListPage, check_page, decode_page
from vrampack.kube.list_pager import ListPager
from vrampack.kube.objects import LeaseObject, NamespaceObject, NodeObject, PodObject, Status, WatchEvent
from vrampack.kube.pod_groups import PodGroupObject
from vrampack.kube.retry_backoff import LONGEST_SECONDS, RetryBackoff, extend_pause
from vrampack.kube.watch_lag import WatchLag
from vrampack.kube.watch_reader import WatchReader

log = logging.getLogger(__name__)

SERVER_SECONDS = (240, 300)
"""The server ends a watch after a random time in this range, as client-go asks it to."""
SILENCE_SECONDS = 75.0
"""The API server sends a bookmark a minute; longer silence means a dead connection. The ledger counts as stale after 120 s."""
WORDLESS_WATCHES = 3
"""After this many watches in a row that end without an event, everything is listed. client-go lists after the first; but a
server that stops ends all its watches, and its successor can continue them."""
RECONNECT_SECONDS = 5.0
"""The longest wait while connections are refused: trying costs the server nothing, and its return is noticed soon."""
SHORT_WATCH_SECONDS = 1.0
SHORT_WATCH_PAUSE_SECONDS = 0.1
"""The pause after a watch that had events and was shorter than this, so that no server can cause a busy loop."""
EVENT_SLICE_SECONDS = 0.002
"""A burst of events is processed in slices of this many, so that a verb never waits for all of it."""

_EVENT = msgspec.json.Decoder(WatchEvent)
_STATUS = msgspec.json.Decoder(Status)


class _VersionOnly(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Bookmark(msgspec.Struct):
    metadata: _VersionOnly


_RAW_PAGE = msgspec.json.Decoder(ListPage[msgspec.Raw])
"""For a page with an object that cannot be decoded: decoding it object by object saves the others."""

_Object = TypeVar("_Object", bound=PodObject | NodeObject | NamespaceObject | LeaseObject | PodGroupObject)
_Object_contra = TypeVar("_Object_contra", contravariant=True)


class ObjectReference(msgspec.Struct, frozen=True):
    """The name of an object that cannot be decoded, as far as it can still be read."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else "an unnamed object"


class _ObjectWithReference(msgspec.Struct):
    metadata: ObjectReference


class Sink(Protocol[_Object_contra]):
    """Receives what the API server shows. Methods do not await: each is one step."""

    def on_list_started(self, reason: str) -> None:
        """A list of everything is about to be requested; `reason` is `start`, `expired`, `error`, `silent`, `no_progress`, `restart`, `requested`."""
        ...

    def on_page(self, objects: Sequence[_Object_contra]) -> None: ...
    def on_list_finished(self) -> None: ...
    def on_changed(self, obj: _Object_contra) -> None: ...
    def on_deleted(self, obj: _Object_contra) -> None: ...
    def on_contact(self) -> None:
        """An event, a bookmark or the end of a list came: the sink's state was true at that moment."""
        ...

    def on_malformed(self, reference: ObjectReference, text: str) -> None:
        """An object could not be decoded. It still exists, so keep what is known of it."""
        ...


class Reflector(Generic[_Object]):
    """Lists and watches one kind of object, all of them or those of a field selector."""

    def __init__(  # noqa: PLR0913 - which objects, and who is told
        self,
        api: Api,
        resource: Resource,
        kind: type[_Object],
        sink: Sink[_Object],
        *,
        field_selector: str = "",
        namespace: str = "",
        lag: WatchLag | None = None,
        relist_spread_seconds: float = 0.0,
        is_optional: bool = False,
    ) -> None:
        """`lag` records whether the watch is read on time. Without a `namespace`, objects of all namespaces.

        A list after the first waits for a random part of `relist_spread_seconds`: for programs that run on every node.
        With `is_optional`, `run` ends with the `RefusedError` of a list that the account lacks the right to, or of a missing kind.
        """
        self._api = api
        self._lag = lag or WatchLag(resource, clock=time.monotonic)
        self._field_selector = field_selector
        self._namespace = namespace
        self._resource = resource
        self._sink: Sink[_Object] = sink
        self._object: msgspec.json.Decoder[_Object] = msgspec.json.Decoder(kind)
        self._page: msgspec.json.Decoder[ListPage[_Object]] = msgspec.json.Decoder(ListPage[kind])  # type: ignore[valid-type]  # known when it runs
        self._relist_spread_seconds = relist_spread_seconds
        self._is_optional = is_optional
        self._version = ""
        self._backoff = RetryBackoff()
        self._wordless_watches = 0
        """In a row."""
        self._is_list_requested = False
        self._watch_started = 0.0
        self._has_activity = False
        """Whether the current watch has sent anything yet."""

    def request_list(self) -> None:
        """List everything when this watch ends, within five minutes, because more fields of each object are read now."""
        self._is_list_requested = True

    async def run(self) -> None:
        """List and watch until cancelled. Failures are logged and retried."""
        reason, was_watching = "start", False
        while True:
            if self._is_list_requested:
                self._version, reason = "", "requested"
            try:
                if not self._version:
                    await self._wait_for_turn(is_relist=was_watching)
                    await self._list(reason)
                was_watching = True
                await self._watch()
                pause = self._choose_pause(None)
            except (NoAnswerError, RefusedError) as error:
                if self._is_optional and not self._version and _is_withheld(error):
                    raise
                was_watching = bool(self._version)
                pause = self._choose_pause(error)
                reason = self._note_failure(error)
            await asyncio.sleep(pause)

    def _choose_pause(self, error: NoAnswerError | RefusedError | None) -> float:
        """Seconds until the next list or watch."""
        if error is None or self._is_good_until(error):
            is_short = time.monotonic() - self._watch_started < SHORT_WATCH_SECONDS
            return SHORT_WATCH_PAUSE_SECONDS if is_short else 0.0
        longest = RECONNECT_SECONDS if isinstance(error, UnreachableError) else LONGEST_SECONDS
        return extend_pause(self._backoff.next_seconds(longest), error)

    async def _wait_for_turn(self, *, is_relist: bool) -> None:
        """Wait before the first try of a list that all nodes may need now; the back-off spreads the others."""
        if is_relist and self._relist_spread_seconds:
            await asyncio.sleep(self._relist_spread_seconds * random.random())  # noqa: S311 - spreads load

    def _note_failure(self, error: Exception) -> str:
        """Log a failure, and forget a version that cannot be trusted. Returns the reason for the next list."""
        reason = self._find_relist_reason(error)
        log.log(
            logging.INFO if reason == "expired" else logging.WARNING,
            "%s failed resource=%s version=%s next=%s failures=%d error=%s",
            "watch" if self._version else "list",
            self._resource,
            self._version or "-",
            f"list:{reason}" if reason else "watch",
            self._backoff.failures,
            error,
        )
        if reason:
            self._version = ""
        return reason

    def _find_relist_reason(self, error: Exception) -> str:
        """Why everything must be listed after this failure; empty: the watch can go on where it was."""
        if isinstance(error, ResourceExpiredError):
            return "expired"
        if not self._version:
            return "restart"
        if isinstance(error, UnreachableError) or _is_throttled(error):
            return ""
        if self._is_good_until(error):
            return ""
        if isinstance(error, BrokenWatchError):
            self._wordless_watches += 1
            return "no_progress" if self._wordless_watches >= WORDLESS_WATCHES else ""
        return "silent" if isinstance(error, SilentWatchError) else "error"

    def _is_good_until(self, error: Exception) -> bool:
        """Whether the watch sent something before its connection was lost, so that its last version is good."""
        return self._has_activity and isinstance(error, BrokenWatchError | SilentWatchError)

    async def _list(self, reason: str) -> None:
        """List all pages."""
        self._is_list_requested = False
        self._sink.on_list_started(reason)
        fetch = partial(
            self._api.list_page, self._resource, field_selector=self._field_selector, namespace=self._namespace
        )
        version = ""
        async for page in ListPager(fetch, self._read_page, self._resource).read_pages():
            self._sink.on_page(page.items or ())
            version = page.metadata.resource_version
            page.items = None  # not kept while the next one arrives
        self._version = version
        self._wordless_watches = 0
        self._lag.note_list_finished()
        self._sink.on_contact()
        self._sink.on_list_finished()

    def _read_page(self, body: bytes) -> ListPage[_Object]:
        try:
            return self._decode_page(body)
        except ForeignAnswerError:
            self._api.observe_foreign_page(self._resource)
            raise

    def _decode_page(self, body: bytes) -> ListPage[_Object]:
        try:
            page = self._page.decode(body)
        except UNDECODABLE as error:
            log.debug("page decoded object by object resource=%s error=%s", self._resource, error)
        else:
            check_page(page, self._resource)
            return page
        raw = decode_page(body, _RAW_PAGE, self._resource)
        decoded = [self._decode(item) for item in raw.items or ()]
        return ListPage(raw.metadata, raw.kind, [each for each in decoded if each is not None])

    def _decode(self, raw: msgspec.Raw) -> _Object | None:
        try:
            return self._object.decode(raw)
        except UNDECODABLE as error:
            reference = _read_reference(raw)
            self._sink.on_malformed(reference, f"{self._resource} {reference}: {error}")
            return None

    async def _watch(self) -> None:
        """One watch, to its end. Raises `BrokenWatchError` if it ends without an event."""
        self._watch_started = time.monotonic()
        self._has_activity = False
        seconds = random.randint(*SERVER_SECONDS)  # noqa: S311 - spreads load, hides nothing
        async with self._api.watch(
            self._resource,
            self._version,
            server_seconds=seconds,
            silence_seconds=SILENCE_SECONDS,
            field_selector=self._field_selector,
            namespace=self._namespace,
        ) as stream:
            with WatchReader(stream, self._lag) as reader:
                await self._apply_events(reader)
        if not self._has_activity:
            raise BrokenWatchError(f"watch {self._resource}: ended without an event")

    async def _apply_events(self, reader: WatchReader) -> None:
        slice_ends = time.monotonic() + EVENT_SLICE_SECONDS
        while (line := await reader.read_line()) is not None:
            self._apply_event(line)
            if time.monotonic() > slice_ends:
                await asyncio.sleep(0)
                slice_ends = time.monotonic() + EVENT_SLICE_SECONDS

    def _apply_event(self, line: bytes) -> None:
        try:
            event = _EVENT.decode(line)
            status = _STATUS.decode(event.object) if event.type == "ERROR" else None
        except UNDECODABLE as error:
            # Later lines may be damaged too, and the same line would come again from this version.
            raise NoAnswerError(f"watch {self._resource}: not an event: {error}") from error
        if status is not None:
            raise _build_event_error(self._resource, status)
        self._has_activity = True
        self._wordless_watches = 0
        self._sink.on_contact()
        obj = self._decode(event.object) if event.type != "BOOKMARK" else None
        if obj is not None:
            (self._sink.on_deleted if event.type == "DELETED" else self._sink.on_changed)(obj)
        self._version = (obj.metadata.resource_version if obj else _read_version(event.object)) or self._version


def _is_throttled(error: Exception) -> bool:
    return isinstance(error, RefusedError) and error.status == HTTPStatus.TOO_MANY_REQUESTS


def _is_withheld(error: Exception) -> bool:
    return isinstance(error, RefusedError) and error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


def _build_event_error(resource: Resource, status: Status) -> Exception:
    """The error of an ERROR event: 410 and 429 as if the watch request had been answered so, any other is no answer."""
    if status.code == HTTPStatus.GONE:
        return ResourceExpiredError(status.code, status.reason, status.message)
    after = limit_retry_after(status.details.retry_after_seconds or 0) if status.details else 0.0
    if status.code == HTTPStatus.TOO_MANY_REQUESTS:
        return RefusedError(status.code, status.reason, status.message, retry_after_seconds=after)
    text = f"watch {resource}: {status.code} {status.reason}: {status.message}"
    return NoAnswerError(text, retry_after_seconds=after)


def _read_version(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=_Bookmark).metadata.resource_version
    except UNDECODABLE:
        return ""


def _read_reference(raw: msgspec.Raw) -> ObjectReference:
    try:
        return msgspec.json.decode(raw, type=_ObjectWithReference).metadata
    except UNDECODABLE:
        return ObjectReference()
