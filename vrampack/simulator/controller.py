"""What follows a store: woken by every change, it does everything there is to do and waits for the next one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from vrampack.simulator.store import Store


class Controller(ABC):
    """One loop over one store, which it reads and writes through alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen = 0
        """The version up to which it has looked at changes."""
        self._wake = asyncio.Event()
        store.subscribe(self._wake.set)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            self._wake.clear()
            self.step()
            await self._wake.wait()

    @abstractmethod
    def step(self) -> None:
        """Do everything there is to do now. What that leads to is seen in the next step."""
