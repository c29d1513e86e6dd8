"""Publishes the measured use of this node's cards: one Lease for the node, written at most once a minute.

It is a Lease because schedulers do not watch Leases, while every change of a Node wakes every pending pod. The Node object owns the
Lease, so it is deleted with the Node. Readers ignore a Lease that is not renewed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import UsageLeaseSettings
from vrampack.cards import well_known
from vrampack.cards.card_usage import CardUsage, name_usage_lease, write_usage
from vrampack.kube.errors import NoAnswerError, RefusedError

log = logging.getLogger(__name__)

WRITE_TIMEOUT_SECONDS = 10.0
RENEW_SECONDS = 300.0
"""The longest time between two writes while nothing changes."""
DURATION_SECONDS = 900
"""How long readers use it: three renewals may fail."""
MEANINGFUL_MIB = 256
MEANINGFUL_PERCENT = 10
"""Smaller changes wait for the next renewal."""
MAX_DELAY = 1.1
"""The largest random factor of an interval: agents that started together spread out."""


class LeaseWriter(Protocol):
    """The only API server call needed here."""

    async def write_lease(
        self, namespace: str, name: str, body: Mapping[str, object], *, timeout_seconds: float
    ) -> None: ...


class NodeIdentity(Protocol):
    """The Node object, see `own_node.py`."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str:
        """Empty while there is no such object."""


class UsageLeasePublisher:
    """Writes after a meaningful change, and to renew the Lease."""

    def __init__(
        self,
        api: LeaseWriter,
        node: NodeIdentity,
        settings: UsageLeaseSettings,
        measure_cards: Callable[[], Mapping[str, CardUsage]],
        *,
        metrics: AgentMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._settings = settings
        self._node = node
        self._measure_cards = measure_cards
        self._metrics = metrics
        self._clock = clock
        self._written: Mapping[str, CardUsage] = {}
        self._written_at = -RENEW_SECONDS

    async def run(self) -> None:
        """Publish periodically until cancelled; returns at once when no namespace is set."""
        if not self._settings.namespace:
            return
        interval = self._settings.interval_seconds
        await asyncio.sleep(interval * random.random())  # noqa: S311 - spreads load, hides nothing
        while True:
            await self.publish_usage()
            await asyncio.sleep(interval * random.uniform(1, MAX_DELAY))  # noqa: S311

    async def publish_usage(self) -> None:
        """Measure once, and write if a write is due. A failed write is retried at the next interval."""
        cards = self._measure_cards()
        if not cards or not self._node.uid or not self._is_due(cards):
            return
        namespace, name = self._settings.namespace, name_usage_lease(self._node.name)
        try:
            await self._api.write_lease(
                namespace, name, self._build_lease(cards), timeout_seconds=WRITE_TIMEOUT_SECONDS
            )
        except (RefusedError, NoAnswerError) as error:
            self._metrics.usage_lease_writes.labels("failed").inc()
            log.warning("lease not written lease=%s/%s error=%s", namespace, name, error)
            return
        self._metrics.usage_lease_writes.labels("ok").inc()
        self._written, self._written_at = dict(cards), self._clock()

    def _is_due(self, cards: Mapping[str, CardUsage]) -> bool:
        if self._clock() - self._written_at >= RENEW_SECONDS or cards.keys() != self._written.keys():
            return True
        return any(_is_meaningful(self._written[uuid], card) for uuid, card in cards.items())

    def _build_lease(self, cards: Mapping[str, CardUsage]) -> dict[str, object]:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node.name, "uid": self._node.uid}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name_usage_lease(self._node.name),
                "namespace": self._settings.namespace,
                "annotations": {well_known.USAGE: write_usage(cards)},
                "ownerReferences": [owner],
            },
            "spec": {
                "holderIdentity": self._node.name,
                "leaseDurationSeconds": DURATION_SECONDS,
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }


def _is_meaningful(before: CardUsage, now: CardUsage) -> bool:
    if (before.sm_percent is None) != (now.sm_percent is None):
        return True
    return (
        abs(before.used_mib - now.used_mib) >= MEANINGFUL_MIB
        or abs(before.peak_mib - now.peak_mib) >= MEANINGFUL_MIB
        or abs((before.sm_percent or 0) - (now.sm_percent or 0)) >= MEANINGFUL_PERCENT
    )
