"""What is between an extender and the API server: calls under way, Bindings that land late, watches and their events.

A call does nothing by itself. A step executes it at the store, answers it, loses it, or lets it time out; each of the
two halves, the write and the reply, may happen without the other. A program between the two may answer instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from tests.simulation.loop import SimulatedLoop
from vrampack.kube.errors import BrokenWatchError, SilentWatchError
from vrampack.kube.http_connection import StreamedReply
from vrampack.kube.watch_reader import ByteStream
from vrampack.simulator.errors import StatusError
from vrampack.simulator.object_store import ObjectStore, StoreChange
from vrampack.simulator.resource_kinds import KINDS_BY_PLURAL

encode = msgspec.json.encode


def encode_status(code: int, reason: str, message: str) -> bytes:
    """The API server's answer without an object."""
    result = "Success" if code < 300 else "Failure"
    return encode({"kind": "Status", "status": result, "reason": reason, "message": message, "code": code})


@dataclass(eq=False)
class SimulatedReply(StreamedReply):
    """An answer of the API server, or of a program in between."""

    status: int
    body: bytes | SimulatedStream
    streams: list[SimulatedStream] = field(default_factory=list)
    """The open watches, to which the body belongs while it is read."""

    retry_after: str = ""

    @cached_property
    def content(self) -> ByteStream:
        stream = self.body if isinstance(self.body, SimulatedStream) else ClosedStream(self.body)
        if isinstance(stream, SimulatedStream):
            self.streams.append(stream)
        return stream

    async def read_body(self, max_bytes: int) -> bytes:
        return self.body[:max_bytes] if isinstance(self.body, bytes) else b""

    def close(self) -> None:
        if self.body in self.streams:
            self.streams.remove(self.body)


class ClosedStream:
    """A body that ends, where a watch was wanted."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def read_nowait(self, n: int = -1) -> bytes:  # noqa: ARG002 - the real one's shape
        body, self._body = self._body, b""
        return body

    async def readany(self) -> bytes:
        return self.read_nowait()


@dataclass(eq=False)
class NetworkCall:
    """One call on its way: not executed, or executed and not answered."""

    process: str
    verb: str
    text: str
    run: Callable[[], bytes | SimulatedStream]
    future: asyncio.Future[SimulatedReply]
    streams: list[SimulatedStream]
    is_executed: bool = False
    result: SimulatedReply | None = None
    refusal: str = ""
    """What the API server said, if that was no."""

    def execute(self) -> None:
        """What the API server does. The answer is kept until it is delivered."""
        if self.is_executed:
            return
        self.is_executed = True
        try:
            self.result = SimulatedReply(201 if self.verb == "bind" else 200, self.run(), self.streams)
        except StatusError as refusal:
            self.refusal = f"{refusal.code} {refusal.reason}: {refusal.message}"
            self.result = SimulatedReply(refusal.code, encode(refusal.build_status()))

    def answer(self) -> None:
        self.execute()
        if self.result is not None and not self.future.done():
            self.future.set_result(self.result)

    def reply(self, code: int, body: bytes) -> None:
        """Somebody answers so, whether the call was executed or not."""
        if not self.future.done():
            self.future.set_result(SimulatedReply(code, body))

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def __str__(self) -> str:
        return f"{self.process} {self.verb} {self.text}"


class WatchFeed:
    """The changes of one kind that one process has not received yet, since its last list."""

    def __init__(self, store: ObjectStore, resource: str, *, is_shuffled: bool) -> None:
        self._store = store
        self.is_shuffled = is_shuffled
        """Whether objects overtake one another. No server does that; then a watch resumes where this feed is."""
        self._kind = KINDS_BY_PLURAL[resource]
        self._pulled = store.version
        self._pending: list[StoreChange] = []
        self.last: StoreChange | None = None

    def begin(self, version: int) -> None:
        """A list at `version` was executed: it covers everything until then."""
        self._pulled, self._pending, self.last = version, [], None

    def resume(self, version: int) -> None:
        """A watch from `version` is opened."""
        if not self.is_shuffled:
            self._pulled, self._pending, self.last = version, [], None

    def pending(self) -> list[StoreChange]:
        if self._pulled < self._store.version:
            self._pending += self._store.read_changes_since(self._pulled, self._kind, None)
            self._pulled = self._store.version
        return self._pending

    def take(self, at: int) -> StoreChange:
        """The change at `at`, or the earliest one of the same object: an object's history is always in order."""
        pending = self.pending()
        if not self.is_shuffled:
            at = 0
        wanted = self._key(pending[at])
        first = next(i for i, change in enumerate(pending) if self._key(change) == wanted)
        self.last = pending.pop(first)
        return self.last

    def _key(self, change: StoreChange) -> tuple[str, str]:
        metadata = change.item["metadata"]
        return metadata.get("namespace", ""), metadata["name"]


@dataclass(eq=False)
class SimulatedStream:
    """One open watch, as a `ByteStream`."""

    process: str
    resource: str
    loop: SimulatedLoop
    feed: WatchFeed
    silence_seconds: float
    lines: deque[bytes] = field(default_factory=deque)
    failure: Exception | None = None
    is_ended: bool = False
    _waiter: asyncio.Future[None] | None = None

    def __str__(self) -> str:
        return f"{self.process} {self.resource}"

    def read_nowait(self, n: int = -1) -> bytes:  # noqa: ARG002 - the real one's shape
        return self.lines.popleft() if self.lines else b""

    async def readany(self) -> bytes:
        while not self.lines:
            if self.failure is not None:
                raise self.failure
            if self.is_ended:
                return b""
            self._waiter = self.loop.create_future()
            timer = self.loop.call_later(self.silence_seconds, self._go_silent)
            try:
                await self._waiter
            finally:
                timer.cancel()
        return self.lines.popleft()

    @property
    def is_open(self) -> bool:
        return self.failure is None and not self.is_ended

    def send(self, type_: str, item: object) -> None:
        self.lines.append(encode({"type": type_, "object": item}) + b"\n")
        self._wake()

    def send_change(self, change: StoreChange) -> None:
        self.send(change.change_type, change.kind.add_type_meta(change.item))

    def send_half(self, change: StoreChange) -> None:
        """The line is cut: the rest, and everything after it, never comes."""
        line = encode({"type": change.change_type, "object": change.kind.add_type_meta(change.item)})
        self.lines.append(line[: len(line) // 2])
        self.fail(BrokenWatchError("cut"))

    def fail(self, error: Exception) -> None:
        self.failure = error
        self._wake()

    def end(self) -> None:
        self.is_ended = True
        self._wake()

    def _go_silent(self) -> None:
        self.fail(SilentWatchError(f"watch {self.resource}: nothing received for {self.silence_seconds:g} s"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
