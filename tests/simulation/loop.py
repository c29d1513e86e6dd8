"""An asyncio loop of one simulated process: it runs when told to, and its time is the world's.

It is asyncio's own loop with nothing to select on. Callbacks run in the order in which they became ready; what a seed
decides is when an answer, an event or the passing of time makes one ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

BUSY = 5_000
"""Rounds in one go after which the process is in a loop without waiting; a burst of events takes some ten."""


class _NothingToSelect:
    """In place of sockets."""

    def select(self, _timeout: float | None) -> list[object]:
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """One process. It runs only in `run_ready`."""

    _ready: list[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._selector = _NothingToSelect()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """Alive, in the order in which they began: a set has none."""
        self.failures: list[str] = []
        """What was raised and not caught."""
        self.set_task_factory(self._new_task)
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        return self._clock()

    def run_ready(self) -> None:
        """Everything that can run now, and what becomes ready by it."""
        asyncio._set_running_loop(self)
        try:
            for _ in range(BUSY):
                if not (self._ready or self._is_due()):
                    return
                self._run_once()  # type: ignore[attr-defined]  # one turn of the real loop
        finally:
            asyncio._set_running_loop(None)
        self.failures.append(f"{BUSY} rounds without waiting for anything")

    def run_turn(self) -> None:
        """Only what is ready now, not what becomes ready by it."""
        asyncio._set_running_loop(self)
        try:
            if self._ready or self._is_due():
                self._run_once()  # type: ignore[attr-defined]  # as above
        finally:
            asyncio._set_running_loop(None)

    def kill(self) -> None:
        """Nothing of this process continues. Its tasks are unwound only so that Python has nothing to complain about."""
        for task in tuple(self._tasks):
            task.cancel()
        self.run_ready()
        self.close()

    def _is_due(self) -> bool:
        return bool(self._scheduled) and self._scheduled[0].when() <= self.time()

    def _process_events(self, events: list[object]) -> None:
        """The real loop's hook for what was selected: nothing ever is."""

    def _new_task(
        self, _loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any]
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")
