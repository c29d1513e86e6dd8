"""What is between an extender and the API server: calls under way, Bindings that land late, watches and their events.

A call does nothing by itself. A step executes it at the store, answers it, loses it, or lets it time out; each of the
two halves, the write and the reply, may happen without the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.simulation.loop import SimulatedLoop
from vrampack.kube.client import Resource
from vrampack.kube.errors import (
    BrokenWatchError,
    NoAnswerError,
    RefusedError,
    ResourceExpiredError,
    SilentWatchError,
)
from vrampack.simulator.errors import StatusError
from vrampack.simulator.object_store import ObjectStore, StoreChange
from vrampack.simulator.resource_kinds import KINDS_BY_PLURAL

encode = msgspec.json.encode


@dataclass(eq=False)
class NetworkCall:
    """One call on its way: not executed, or executed and not answered."""

    process: str
    verb: str
    text: str
    run: Callable[[], Any]  # Any: what the method of the API answers
    future: asyncio.Future[Any]
    is_executed: bool = False
    result: Any = None
    error: Exception | None = None

    def execute(self) -> None:
        """What the API server does. The answer is kept until it is delivered."""
        if self.is_executed:
            return
        self.is_executed = True
        try:
            self.result = self.run()
        except StatusError as refusal:
            self.error = error_of(refusal)

    def answer(self) -> None:
        self.execute()
        self.fail(self.error)

    def fail(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(error)

    def __str__(self) -> str:
        return f"{self.process} {self.verb} {self.text}"


def error_of(refusal: StatusError) -> Exception:
    """As `vrampack.kube.client` reads a status."""
    kind = ResourceExpiredError if refusal.code == 410 else RefusedError
    if 400 <= refusal.code < 500:
        return kind(refusal.code, refusal.reason, refusal.message)
    return NoAnswerError(f"{refusal.code} {refusal.reason}")


class WatchFeed:
    """The changes of one kind that one process has not received yet, since its last list."""

    def __init__(self, store: ObjectStore, resource: Resource, *, is_shuffled: bool) -> None:
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
    resource: Resource
    loop: SimulatedLoop
    feed: WatchFeed
    silence_seconds: float
    ends_at: float
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
