"""The receiver of a webhook: what Alertmanager sends, as it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from aiohttp import web

from tests.support.processes import LOOPBACK

Json: TypeAlias = Any
"""An alert as Alertmanager's webhook sends it."""


@dataclass(slots=True)
class NotificationReceiver:
    """A page that is called when an alert fires and when it is resolved."""

    url: str = ""
    alerts: list[Json] = field(default_factory=list)
    """Each with `status`, `labels` and `annotations`, in the order of arrival."""
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def find_alert(self, name: str, status: Literal["firing", "resolved"]) -> Json | None:
        """The first of that name that came with that status."""
        return next(
            (each for each in self.alerts if (each["labels"]["alertname"], each["status"]) == (name, status)), None
        )

    async def wait_for_alert(self, name: str, status: Literal["firing", "resolved"]) -> Json:
        """The same, as soon as it has come."""
        while (found := self.find_alert(name, status)) is None:
            self._arrived.clear()
            await self._arrived.wait()
        return found

    @property
    def names(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.alerts}

    async def receive(self, request: web.Request) -> web.Response:
        self.alerts += (await request.json())["alerts"]
        self._arrived.set()
        return web.Response()


@asynccontextmanager
async def run_receiver() -> AsyncIterator[NotificationReceiver]:
    receiver = NotificationReceiver()
    application = web.Application()
    application.router.add_post("/", receiver.receive)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, 0)
        await site.start()
        receiver.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}/"
        yield receiver
    finally:
        await runner.cleanup()
