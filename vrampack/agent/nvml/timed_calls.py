"""Runs calls that may block for ever: each in its own thread, with a time-out.

A thread that hangs in a driver cannot be ended. It is abandoned and remembered by the kind of its call: until it
returns, calls of that kind are refused at once, so there is never more than one hung thread per kind. The threads
are daemons, so they do not keep a program from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from vrampack.agent.nvml.errors import DriverHungError

Result = TypeVar("Result")


class TimedCalls:
    """Calls of one event loop."""

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._abandoned: dict[str, asyncio.Future[object]] = {}

    @property
    def hung_count(self) -> int:
        """Threads that have not returned, although their callers have given up."""
        return len(self._abandoned)

    async def run_call(self, kind: str, function: Callable[[], Result], *, extra_seconds: float = 0) -> Result:
        """The function's answer, or what it raises; `DriverHungError` after the time-out, which `extra_seconds` extends.

        Calls of one kind take turns.
        """
        async with self._turns[kind]:
            if kind in self._abandoned:
                raise DriverHungError(f"{kind}: the driver has not answered an earlier call yet")
            answer = _start(kind, function)
            try:
                # Not `wait_for`: before Python 3.12 it drops a cancellation that comes together with the answer.
                async with asyncio.timeout(self._timeout_seconds + extra_seconds):
                    return await asyncio.shield(answer)
            except TimeoutError as error:
                if answer.done():  # the driver's own timeout, not ours
                    raise
                seconds = self._timeout_seconds + extra_seconds
                raise DriverHungError(f"{kind}: no answer from the driver in {seconds:g} s") from error
            finally:
                if not answer.done():  # also when our caller was cancelled
                    self._abandon(kind, answer)

    def _abandon(self, kind: str, answer: asyncio.Future[Result]) -> None:
        def forget(_: asyncio.Future[Result]) -> None:
            del self._abandoned[kind]
            answer.exception()  # retrieved, so that the loop does not complain

        self._abandoned[kind] = answer  # type: ignore[assignment]  # only counted, never read
        answer.add_done_callback(forget)


def _start(kind: str, function: Callable[[], Result]) -> asyncio.Future[Result]:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Result] = loop.create_future()

    def work() -> None:
        try:
            value = function()
        except BaseException as error:  # noqa: BLE001 - raised again in the task that awaits the answer
            _settle(loop, answer.set_exception, error)
        else:
            _settle(loop, answer.set_result, value)

    threading.Thread(target=work, name=f"nvml {kind}", daemon=True).start()
    return answer


def _settle(loop: asyncio.AbstractEventLoop, settle: Callable[[Result], None], value: Result) -> None:
    try:
        loop.call_soon_threadsafe(settle, value)
    except RuntimeError:
        return  # the loop has ended, no caller waits
