"""The node's own object: what it says of us, what other plugins offer there, and what is to be written into it.

It is written when what it ought to say differs from what it says, all in one patch, and not again until the watch has
shown that write: every change of a node wakes every pending pod of the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.objects import LocalNodeObject
from vrampack.kube.reflector import ObjectReference

log = logging.getLogger(__name__)

WRITE_SECONDS = 10.0
ECHO_SECONDS = 10.0
"""So long the watch may take to show a write before what it shows is compared again."""
AGAIN_SECONDS = (1.0, 30.0)
"""First and longest pause after a write that failed; at random down to half of it, for there are many nodes."""
Entries = Mapping[tuple[str, str], str | None]
"""By field of `metadata` (`annotations` or `labels`) and key; None: it is not to be there."""


class OwnNode:
    """A reflector's sink for one Node, and its writer."""

    def __init__(
        self,
        api: Api,
        name: str,
        *,
        wrote: Callable[[], None],
        offers: Callable[[Mapping[str, str], Mapping[str, str]], None],
    ) -> None:
        """`offers` is told at each change what the node has of every resource, capacity and allocatable."""
        self._api = api
        self._name = name
        self._wrote = wrote
        self._offers = offers
        self._says: dict[str, Mapping[str, str]] | None = None
        self._wanted: dict[tuple[str, str], str | None] = {}
        self._sent: dict[tuple[str, str], str | None] = {}
        self._failures = 0
        self._seen = asyncio.Event()
        self._wake = asyncio.Event()

    async def seen_once(self) -> None:
        """Wait until the API server has shown the node: before that, nothing it says means nothing is known."""
        await self._seen.wait()

    def want(self, entries: Entries) -> None:
        """What the node ought to say of these keys from now on."""
        self._wanted.update(entries)
        self._wake.set()

    def says(self, field: str, key: str) -> str | None:
        """What it says now, as far as it was seen."""
        return (self._says or {}).get(field, {}).get(key)

    async def run(self) -> None:
        """Write what differs, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            differing = self._differing()
            if not differing:
                self._sent = {}  # all of it was shown, perhaps before the answer to the write came
                continue
            if differing.items() <= self._sent.items():
                await self._echo()
            else:
                await self._write(differing)

    async def _echo(self) -> None:
        """A write is on its way to us; what the watch shows meanwhile is older."""
        try:
            async with asyncio.timeout(ECHO_SECONDS):
                while self._differing().items() & self._sent.items():
                    await self._wake.wait()
                    self._wake.clear()
        except TimeoutError:
            log.warning("node does not show what was written node=%s", self._name)
        self._sent = {}
        self._wake.set()

    async def _write(self, differing: dict[tuple[str, str], str | None]) -> None:
        metadata: dict[str, dict[str, str | None]] = {}
        for (field, key), value in differing.items():
            metadata.setdefault(field, {})[key] = value
        try:
            await self._api.patch_node(self._name, {"metadata": metadata}, timeout_seconds=WRITE_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            log.warning("node not written node=%s keys=%s error=%s", self._name, _keys(differing), error)
            self._failures += 1
            await asyncio.sleep(self._pause())
            self._wake.set()
            return
        self._failures = 0
        self._wrote()
        self._sent = differing
        log.info("node written node=%s keys=%s", self._name, _keys(differing))
        self._wake.set()

    def _pause(self) -> float:
        first, longest = AGAIN_SECONDS
        return min(longest, first * 2.0 ** min(self._failures - 1, 10)) * random.uniform(0.5, 1)  # noqa: S311 - no secret

    def _differing(self) -> dict[tuple[str, str], str | None]:
        if self._says is None:
            return {}
        return {
            (field, key): value
            for (field, key), value in self._wanted.items()
            if self._says.get(field, {}).get(key) != value
        }

    def on_list_started(self, reason: str) -> None:
        log.debug("node listed anew reason=%s", reason)

    def on_page(self, objects: Sequence[LocalNodeObject]) -> None:
        for obj in objects:
            self.on_changed(obj)

    def on_list_finished(self) -> None:
        """One object: there is nothing to add up."""

    def on_changed(self, obj: LocalNodeObject) -> None:
        self._says = {"annotations": obj.metadata.annotations or {}, "labels": obj.metadata.labels or {}}
        self._seen.set()
        self._wake.set()
        self._offers(_texts(obj.status.capacity), _texts(obj.status.allocatable))

    def on_deleted(self, obj: LocalNodeObject) -> None:
        """A node that joins anew has another object, with nothing of ours in it."""
        log.warning("node is gone from the API server node=%s", obj.metadata.name)
        self._says = None

    def on_contact(self) -> None:
        """Nothing hangs on the age of this."""

    def on_malformed(self, reference: ObjectReference, text: str) -> None:
        log.warning("node not readable node=%s error=%s", reference, text)


def _texts(quantities: Mapping[str, msgspec.Raw] | None) -> dict[str, str]:
    return {name: bytes(text).decode(errors="replace").strip('"') for name, text in (quantities or {}).items()}


def _keys(entries: Mapping[tuple[str, str], str | None]) -> str:
    return ",".join(key for _, key in sorted(entries))
