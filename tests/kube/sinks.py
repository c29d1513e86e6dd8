"""A sink that keeps what a reflector reports, and lets a test wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

import pytest

from vrampack.kube import reflector
from vrampack.kube.client import Api
from vrampack.kube.objects import PodObject
from vrampack.kube.reflector import SILENCE_SECONDS, ObjectReference, Reflector

WITHIN_SECONDS = 10.0
"""How long to wait for something a test expects."""

_Object = TypeVar("_Object", bound=PodObject)


class RecordingSink(Generic[_Object]):
    """Objects by name as last reported; a list replaces them when it ends."""

    def __init__(self) -> None:
        self.objects: dict[str, _Object] = {}
        self.told: list[str] = []
        """What happened, in order: `list start`, `page 2`, `list ends`, `changed a`, `gone a`."""
        self.problems: list[str] = []
        self.words = 0
        """How often the reflector reported contact with the API server."""
        self._listed: dict[str, _Object] = {}
        self._changed = asyncio.Event()

    def on_list_started(self, reason: str) -> None:
        self._listed = {}
        self._tell(f"list {reason}")

    def on_page(self, objects: Sequence[_Object]) -> None:
        self._listed |= {obj.metadata.name: obj for obj in objects}
        self._tell(f"page {len(objects)}")

    def on_list_finished(self) -> None:
        self.objects = self._listed
        self._tell("list ends")

    def on_changed(self, obj: _Object) -> None:
        self.objects[obj.metadata.name] = obj
        self._tell(f"changed {obj.metadata.name}")

    def on_deleted(self, obj: _Object) -> None:
        self.objects.pop(obj.metadata.name, None)
        self._tell(f"gone {obj.metadata.name}")

    def on_contact(self) -> None:
        self.words += 1
        self._wake()

    def on_malformed(self, reference: ObjectReference, text: str) -> None:  # noqa: ARG002 - the text names it
        self.problems.append(text)
        self._wake()

    @property
    def names(self) -> list[str]:
        return sorted(self.objects)

    @property
    def lists(self) -> list[str]:
        """The reasons of all lists so far."""
        return [each.removeprefix("list ") for each in self.told if each.startswith("list ") and each != "list ends"]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` is true of this sink."""
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise AssertionError(
                f"told {self.told[-20:]}, problems {self.problems[-3:]}, names {self.names[:20]}"
            ) from error

    async def told_of(self, *names: str) -> None:
        """Wait until exactly these objects are there."""
        await self.until(lambda: self.names == sorted(names))

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()


@asynccontextmanager
async def run_reflector(
    api: Api, sink: RecordingSink[PodObject], *, silence_seconds: float = SILENCE_SECONDS
) -> AsyncIterator[Reflector[PodObject]]:
    """Run a reflector of pods; it must still be running when the test is over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reflector, "SILENCE_SECONDS", silence_seconds)
        running = Reflector(api, "pods", PodObject, sink)
        task = asyncio.create_task(running.run())
        try:
            yield running
        finally:
            is_running = not task.done()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert is_running
