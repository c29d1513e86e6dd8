"""A controller: woken by every change to the store, it reconciles and waits for the next change."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from vrampack.simulator.object_store import ObjectStore


class Controller(ABC):
    """One loop over one store, which is all that it reads and writes."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._observed_version = 0
        """The store version whose changes have been reconciled."""
        self._wake_event = asyncio.Event()
        store.subscribe(self._wake_event.set)

    async def run(self) -> None:
        """Reconcile after every change, until cancelled."""
        while True:
            self._wake_event.clear()
            self.reconcile()
            await self._wake_event.wait()

    @abstractmethod
    def reconcile(self) -> None:
        """Do everything that is due now. The next call reconciles the changes that this one makes."""
