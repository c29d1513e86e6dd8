"""Keeps a sink in step with all objects of one kind: list, then watch, without end.

    list (pages of 500) --> watch --> event, bookmark --> watch ...
         ^                    |  ended by the server: watch again from the last version
         |                    |  cut, or silent after an event: back off, watch again from the last version
         '--- 410, or silent -'
              from the start

Nothing is lost between the list and the watch, because the watch begins at the list's resourceVersion. A watch that
was silent all along is not trusted with that version: an API server that was restored from a backup has not reached
it yet, and says nothing until it has.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Generic, Protocol, TypeVar

import msgspec

from vrampack.kube.client import Api, Resource
from vrampack.kube.errors import NoAnswerError, RefusedError, ResourceExpiredError, SilentWatchError
from vrampack.kube.objects import UNDECODABLE, ListMeta, NodeObject, PodObject, Status, WatchEvent

log = logging.getLogger(__name__)

PAGE_SIZE = 500
"""Objects per list page: decoding 500 pods takes about 5 ms, and nothing may hold the loop for 20."""
SERVER_SECONDS = (240, 300)
"""The server ends a watch after a random time in this range, as client-go asks it to."""
SILENCE_SECONDS = 75.0
"""The API server sends a bookmark a minute; longer silence is a dead line. Stale is 120 s."""
MAX_EVENT_BYTES = 16 * 1024 * 1024
"""etcd takes objects of 1.5 MiB, and JSON may escape every byte of one as six."""
BACKOFF_SECONDS = (0.1, 5.0)
"""First and longest wait after a failure; a server that comes back is seen within 5 s."""
EVENT_SLICE_SECONDS = 0.005
"""A burst of events is worked off in slices of this, so that a verb never waits for all of it."""

_EVENT = msgspec.json.Decoder(WatchEvent)
_STATUS = msgspec.json.Decoder(Status)


class _VersionOnly(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Bookmark(msgspec.Struct):
    metadata: _VersionOnly


class _RawPage(msgspec.Struct):
    """A page with something in it that cannot be decoded: object by object, the others count."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


_Object = TypeVar("_Object", bound=PodObject | NodeObject)
_Object_contra = TypeVar("_Object_contra", contravariant=True)


class _Page(msgspec.Struct, Generic[_Object]):
    metadata: ListMeta
    items: list[_Object] | None = None


class ObjectReference(msgspec.Struct, frozen=True):
    """Which object it is, as far as that can still be read of one that cannot be decoded."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else "an unnamed object"


class _ObjectWithReference(msgspec.Struct):
    metadata: ObjectReference


class Sink(Protocol[_Object_contra]):
    """Is told what the API server shows. Methods do not await: each is one step."""

    def on_list_started(self, reason: str) -> None:
        """A list of everything is about to be asked for: `start`, `expired`, `silent` or `restart`."""
        ...

    def on_page(self, objects: Sequence[_Object_contra]) -> None: ...
    def on_list_finished(self) -> None: ...
    def on_changed(self, obj: _Object_contra) -> None: ...
    def on_deleted(self, obj: _Object_contra) -> None: ...
    def on_contact(self) -> None:
        """The API server said something, if only that nothing happened."""
        ...

    def on_malformed(self, reference: ObjectReference, text: str) -> None:
        """An object could not be decoded. It exists all the same: what is known of it must stay."""
        ...


class Reflector(Generic[_Object]):
    """One kind of object, all of them or those of a field selector. `run` until cancelled."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        kind: type[_Object],
        sink: Sink[_Object],
        *,
        silence_seconds: float = SILENCE_SECONDS,
        field_selector: str = "",
    ) -> None:
        self._api = api
        self._field_selector = field_selector
        self._resource = resource
        self._sink: Sink[_Object] = sink
        self._silence_seconds = silence_seconds
        self._object: msgspec.json.Decoder[_Object] = msgspec.json.Decoder(kind)
        self._pages: msgspec.json.Decoder[_Page[_Object]] = msgspec.json.Decoder(_Page[kind])  # type: ignore[valid-type]  # known when it runs
        self._version = ""
        self._failures = 0
        self._has_activity = False
        """Whether the present watch said anything yet."""

    async def run(self) -> None:
        """List and watch until cancelled. Failures are logged and retried."""
        reason = "start"
        while True:
            try:
                if not self._version:
                    await self._list(reason)
                await self._watch()
            except (NoAnswerError, RefusedError) as error:
                reason = self._note_failure(error)
                await asyncio.sleep(_backoff(self._failures))

    def _note_failure(self, error: Exception) -> str:
        """Note a failure, and whether the version is to be forgotten; the reason for the next list."""
        self._failures += 1
        if isinstance(error, ResourceExpiredError):
            log.info("watch expired resource=%s error=%s", self._resource, error)
            self._version = ""
            return "expired"
        if isinstance(error, SilentWatchError) and not self._has_activity:
            log.warning("watch silent resource=%s version=%s error=%s", self._resource, self._version, error)
            self._version = ""
            return "silent"
        log.warning("API server unreachable resource=%s failures=%d error=%s", self._resource, self._failures, error)
        return "restart"

    async def _list(self, reason: str) -> None:
        """The next page is asked for before this one is worked off: the server makes it meanwhile."""
        self._sink.on_list_started(reason)
        page = await self._fetch_page("")
        while True:
            meta, objects = self._decode_page(page)
            following = asyncio.create_task(self._fetch_page(meta.continue_)) if meta.continue_ else None
            await asyncio.sleep(0)  # so that the call leaves
            self._sink.on_contact()
            self._sink.on_page(objects)
            if following is None:
                break
            page = await following
        self._version = meta.resource_version
        self._sink.on_list_finished()

    async def _fetch_page(self, token: str) -> bytes:
        return await self._api.list_page(
            self._resource, limit=PAGE_SIZE, token=token, field_selector=self._field_selector
        )

    def _decode_page(self, page: bytes) -> tuple[ListMeta, Sequence[_Object]]:
        try:
            whole = self._pages.decode(page)
        except UNDECODABLE as error:
            log.debug("page decoded object by object resource=%s error=%s", self._resource, error)
        else:
            return whole.metadata, whole.items or ()
        try:
            raw = msgspec.json.decode(page, type=_RawPage)
        except UNDECODABLE as error:
            raise NoAnswerError(f"list {self._resource}: not a list: {error}") from error
        decoded = [self._decode(item) for item in raw.items or ()]
        return raw.metadata, [each for each in decoded if each is not None]

    def _decode(self, raw: msgspec.Raw) -> _Object | None:
        try:
            return self._object.decode(raw)
        except UNDECODABLE as error:
            reference = _read_reference(raw)
            self._sink.on_malformed(reference, f"{self._resource} {reference}: {error}")
            return None

    async def _watch(self) -> None:
        """One watch, to its end. An end within a second counts as a failure, so that it is not a busy loop."""
        started = time.monotonic()
        self._has_activity = False
        seconds = random.randint(*SERVER_SECONDS)  # noqa: S311 - spreads load, hides nothing
        async with self._api.watch(
            self._resource,
            self._version,
            server_seconds=seconds,
            silence_seconds=self._silence_seconds,
            field_selector=self._field_selector,
        ) as lines:
            self._sink.on_contact()
            slice_ends = time.monotonic() + EVENT_SLICE_SECONDS
            while line := await lines.readuntil(b"\n", max_size=MAX_EVENT_BYTES):
                self._apply_event(line)
                if time.monotonic() > slice_ends:
                    await asyncio.sleep(0)
                    slice_ends = time.monotonic() + EVENT_SLICE_SECONDS
        if time.monotonic() - started < 1:
            self._failures += 1
            await asyncio.sleep(_backoff(self._failures))

    def _apply_event(self, line: bytes) -> None:
        try:
            event = _EVENT.decode(line)
            status = _STATUS.decode(event.object) if event.type == "ERROR" else None
        except UNDECODABLE as error:
            # A line cut in the middle: everything after it is lost, the watch begins again.
            raise NoAnswerError(f"watch {self._resource}: not an event: {error}") from error
        self._has_activity = True
        self._sink.on_contact()
        if status is not None:
            if status.code == HTTPStatus.GONE:
                raise ResourceExpiredError(status.code, status.reason, status.message)
            raise NoAnswerError(f"watch {self._resource}: {status.code} {status.reason}: {status.message}")
        self._failures = 0
        obj = self._decode(event.object) if event.type != "BOOKMARK" else None
        if obj is not None:
            (self._sink.on_deleted if event.type == "DELETED" else self._sink.on_changed)(obj)
        self._version = (obj.metadata.resource_version if obj else _read_version(event.object)) or self._version


def _backoff(failures: int) -> float:
    first, longest = BACKOFF_SECONDS
    return min(longest, first * 2.0 ** min(failures, 10)) * random.uniform(0.5, 1)  # noqa: S311 - spreads load


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
