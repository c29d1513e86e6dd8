"""Where a test can interfere: a door lets calls pass, holds them, or refuses them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

import grpc


class Aborting(Protocol):
    """A call that can be ended with an error."""

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn: ...


@dataclass(slots=True)
class FaultPoint:
    """One door on kubelet's side of a call."""

    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _reached: asyncio.Event = field(default_factory=asyncio.Event)
    _refusals: int = 0
    _refusal: tuple[grpc.StatusCode, str] = (grpc.StatusCode.UNKNOWN, "")

    def __post_init__(self) -> None:
        self._open.set()

    def hold(self) -> None:
        """Callers wait from now on, until `release`."""
        self._reached.clear()
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def refuse(self, text: str, *, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN, times: int = 1) -> None:
        """Refuse the next `times` callers with this error."""
        self._refusal, self._refusals = (code, text), times

    async def reached(self, *, timeout_seconds: float = 10) -> None:
        """Wait until a caller is held at the door."""
        async with asyncio.timeout(timeout_seconds):
            await self._reached.wait()

    async def passing(self, context: Aborting) -> None:
        """A service calls this first."""
        if self._refusals:
            self._refusals -= 1
            await context.abort(*self._refusal)
        if not self._open.is_set():
            self._reached.set()
            await self._open.wait()


@dataclass(frozen=True, slots=True)
class FaultPoints:
    """The doors of one kubelet; they outlive its restarts."""

    register: FaultPoint = field(default_factory=FaultPoint)
    """Before kubelet does anything about a registration."""
    register_answer: FaultPoint = field(default_factory=FaultPoint)
    """After kubelet has connected to the plugin, before Register is answered."""
    list_pods: FaultPoint = field(default_factory=FaultPoint)
    """Before pod-resources List looks at anything."""
