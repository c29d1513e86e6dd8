"""The node's Lease: when it is written, what it says, and what a failure leads to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from vrampack.agent.cluster.usage_lease import RENEW_SECONDS, UsageLeasePublisher
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import UsageLeaseSettings
from vrampack.cards.card_usage import CardUsage, read_usage
from vrampack.cards.well_known import USAGE
from vrampack.kube.errors import NoAnswerError, RefusedError

IDLE = CardUsage(500, 500, 0)
NAMESPACE = "vrampack-system"


class LeaseHarness:
    """The publisher between figures and an API server that a test makes up, on a clock of its own."""

    def __init__(self) -> None:
        self.name, self.uid = "gpu-0", "node-uid"
        self.now = 0.0
        self.cards: dict[str, CardUsage] = {"GPU-0": IDLE}
        self.errors: list[Exception] = []
        self.written: list[tuple[str, str, Any]] = []
        self.metrics = AgentMetrics("test", node=self.name)
        self.publisher = UsageLeasePublisher(
            self,
            self,
            UsageLeaseSettings(namespace=NAMESPACE),
            lambda: self.cards,
            metrics=self.metrics,
            clock=lambda: self.now,
        )

    async def write_lease(
        self, namespace: str, name: str, body: Mapping[str, object], *, timeout_seconds: float
    ) -> None:
        assert timeout_seconds > 0
        if self.errors:
            raise self.errors.pop()
        self.written.append((namespace, name, body))

    async def count_writes_after(self, **changes: CardUsage) -> int:
        """A minute later, with these cards."""
        before = len(self.written)
        self.now += 60
        self.cards |= changes
        await self.publisher.publish_usage()
        return len(self.written) - before


async def test_a_lease_has_holder_duration_and_usage() -> None:
    harness = LeaseHarness()
    await harness.publisher.publish_usage()
    ((namespace, name, body),) = harness.written
    assert (namespace, name) == (NAMESPACE, "vrampack-usage-gpu-0")
    assert read_usage(body["metadata"]["annotations"][USAGE]) == {"GPU-0": IDLE}
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "gpu-0", "uid": "node-uid"}
    ]
    assert body["spec"]["holderIdentity"] == "gpu-0"
    assert body["spec"]["leaseDurationSeconds"] > 2 * RENEW_SECONDS


async def test_small_changes_wait_for_the_renewal() -> None:
    harness = LeaseHarness()
    await harness.publisher.publish_usage()
    small = CardUsage(500 + 255, 500 + 255, 9)
    assert [await harness.count_writes_after(**{"GPU-0": small}) for _ in range(5)] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "changed",
    [CardUsage(756, 756, 0), CardUsage(500, 756, 0), CardUsage(500, 500, 10), CardUsage(500, 500, None)],
    ids=["used", "peak", "busy", "not told"],
)
async def test_significant_change_is_written(changed: CardUsage) -> None:
    harness = LeaseHarness()
    await harness.publisher.publish_usage()
    assert await harness.count_writes_after() == 0
    assert await harness.count_writes_after(**{"GPU-0": changed}) == 1


async def test_new_card_is_written() -> None:
    harness = LeaseHarness()
    await harness.publisher.publish_usage()
    assert await harness.count_writes_after(**{"GPU-1": IDLE}) == 1


@pytest.mark.parametrize("error", [NoAnswerError("cut"), RefusedError(403, "Forbidden", "no")])
async def test_a_write_that_failed_is_tried_again_a_minute_later(error: Exception) -> None:
    harness = LeaseHarness()
    harness.errors.append(error)
    await harness.publisher.publish_usage()
    assert harness.written == []
    assert await harness.count_writes_after() == 1
    page = harness.metrics.render_page().decode()
    for result in ("ok", "failed"):
        assert f'vrampack_agent_usage_lease_writes_total{{result="{result}"}} 1.0' in page


async def test_nothing_is_written_without_figures_or_without_a_node() -> None:
    harness = LeaseHarness()
    harness.uid = ""
    await harness.publisher.publish_usage()
    harness.uid, harness.cards = "node-uid", {}
    await harness.publisher.publish_usage()
    assert harness.written == []


async def test_two_writes_are_at_least_an_interval_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that change all the time: the pauses are what bounds the writes."""
    harness = LeaseHarness()
    pauses: list[float] = []

    async def count_pause(seconds: float) -> None:
        pauses.append(seconds)
        harness.cards = {"GPU-0": CardUsage(1000 * len(pauses), 1_000_000, 0)}
        if len(pauses) > 20:
            raise TimeoutError

    monkeypatch.setattr("vrampack.agent.cluster.usage_lease.asyncio.sleep", count_pause)
    with pytest.raises(TimeoutError):
        await harness.publisher.run()
    assert len(harness.written) == 20
    assert 0 <= pauses[0] <= 60
    assert 60 <= min(pauses[1:]) < max(pauses[1:]) <= 66


async def test_without_a_namespace_there_is_no_lease() -> None:
    harness = LeaseHarness()
    settings = UsageLeaseSettings()
    metrics = harness.metrics
    await UsageLeasePublisher(harness, harness, settings, lambda: harness.cards, metrics=metrics, clock=float).run()
    assert harness.written == []
