"""What the page of metrics shows of cards and containers: measured every few seconds, never while it is asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from vrampack.agent.board import Board
from vrampack.agent.enforcement import Enforcement
from vrampack.agent.fence import Fence
from vrampack.agent.limits.books import Tally
from vrampack.agent.limits.contract import Usage
from vrampack.agent.localpod import LocalPod
from vrampack.agent.metrics import CardUse, Connected, ContainerUse, Metrics, Shown
from vrampack.agent.nvml.driver import Driver
from vrampack.agent.nvml.errors import DriverError
from vrampack.agent.pods import LocalPods

log = logging.getLogger(__name__)

MEASURE_SECONDS = 15.0
"""A scrape interval that is usual."""
_MIB = 1024 * 1024


class Showing:
    """The last measurement beside what is known anyway."""

    def __init__(
        self,
        driver: Driver,
        board: Board,
        fence: Fence,
        pods: LocalPods,
        enforcement: Enforcement,
        metrics: Metrics,
    ) -> None:
        self._driver = driver
        self._board = board
        self._fence = fence
        self._pods = pods
        self._enforcement = enforcement
        self._metrics = metrics
        self._of_cards: Mapping[str, int] = {}
        self._of_containers: tuple[Usage, ...] | None = None
        """None: nobody measured, so nobody is said to use nothing."""

    async def run(self) -> None:
        """Measure, until cancelled."""
        while True:
            await self.measure()
            await asyncio.sleep(MEASURE_SECONDS)

    async def measure(self) -> None:
        """One measurement; one that fails shows no use rather than an old one."""
        try:
            self._of_cards = {each.uuid: each.used_bytes for each in await self._driver.usage()}
            self._of_containers = None if self._enforcement.word in ("", "none") else await self._enforcement.usage()
        except DriverError as error:
            self._metrics.driver_errors.inc()
            log.debug("not measured error=%s", error)
            self._of_cards, self._of_containers = {}, None

    def look(self) -> Shown:
        """For the page."""
        offer, held = self._board.offer, self._fence.units_held()
        return Shown(
            cards=tuple(
                CardUse(card, held[card.uuid or ""], self._of_cards.get(card.uuid or "")) for card in offer.shown
            ),
            containers=tuple(self._containers()),
            connected=tuple(self._connected()),
            enforcement=self._enforcement.word,
            problem=offer.problem,
            hook_answers=self._enforcement.hook_answers,
        )

    def _containers(self) -> Iterable[ContainerUse]:
        """By limit where there is one, so that a container that uses nothing is there as well."""
        used, asking = self._tallies(), self._asking()
        index = {card.uuid: card.index for card in self._board.offer.cards}
        for pod in self._pods.all():
            # Without a name: all containers of the pod together, where they are counted so.
            unnamed = {name for uid, name, _ in used if uid == pod.pod.uid and not name}
            for name in sorted(pod.started | unnamed):
                limits = self._enforcement.limits_of(pod.pod.uid, name) or {}
                for uuid in sorted({*limits, *(card for uid, of, card in used if (uid, of) == (pod.pod.uid, name))}):
                    yield self._container(pod, name, uuid, (index.get(uuid, -1), limits.get(uuid), used, asking))

    def _container(
        self,
        pod: LocalPod,
        name: str,
        uuid: str,
        found: tuple[int, int | None, Mapping[tuple[str, str, str], Tally], Mapping[tuple[str, str], int]],
    ) -> ContainerUse:
        index, limit_mib, used, asking = found
        limit_bytes = None if limit_mib is None else limit_mib * _MIB
        tally = used.get((pod.pod.uid, name, uuid), Tally(0, 0, 0))
        use = ContainerUse(uuid, index, pod.pod.namespace, pod.pod.name, name, limit_bytes, tally.used_bytes)
        if self._enforcement.books is not None:
            if (pod.pod.uid, name, uuid) not in used and (pod.pod.uid, name) not in asking:
                return replace(use, used_bytes=None)  # started before module or library was here, or not over libc
            return replace(use, peak_bytes=tally.peak_bytes, refused=tally.refused)
        return use if self._of_containers is not None else replace(use, used_bytes=None)

    def _connected(self) -> Iterable[Connected]:
        pods = {pod.pod.uid: pod.pod for pod in self._pods.all()}
        for (uid, name), count in sorted(self._asking().items()):
            if uid in pods:
                yield Connected(pods[uid].namespace, pods[uid].name, name, count)

    def _asking(self) -> Mapping[tuple[str, str], int]:
        """Connected processes by pod uid and container; none where they are not counted."""
        books = self._enforcement.books
        return books.connected() if books is not None else {}

    def _tallies(self) -> Mapping[tuple[str, str, str], Tally]:
        """By pod uid, container and card: of the books as they are now, or as it was measured last."""
        if self._enforcement.books is not None:
            return self._enforcement.books.tallies()
        used: dict[tuple[str, str, str], int] = {}
        for row in self._of_containers or ():
            name = self._enforcement.name_of(row.pod_uid, row.container_id)
            if name is not None:
                key = row.pod_uid, name, row.uuid
                used[key] = used.get(key, 0) + row.used_bytes
        return {key: Tally(used_bytes, 0, 0) for key, used_bytes in used.items()}
