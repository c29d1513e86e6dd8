"""Events are few: not repeated soon, not more than ten a second, and never waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from extender.events import EventReason, ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from tests.fakes.api import FakeKubeApi
from tests.support.builders import ledger_pod
from vrampack.kube.errors import NoAnswerError


class FakeEventApi(FakeKubeApi):
    """Keeps the events it is sent; can be told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()
        self.is_down = False

    async def create_event(self, namespace: str, event: Mapping[str, object], *, timeout_seconds: float) -> None:
        self.arrived.set()
        if self.is_down:
            raise NoAnswerError("down")
        await super().create_event(namespace, event, timeout_seconds=timeout_seconds)


class EventHarness:
    """A writer, what it sends to, and its clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.api = FakeEventApi()
        self.metrics = ExtenderMetrics("test")
        self.writer = ExtenderEventRecorder(
            self.api, self.metrics, clock=lambda: self.seconds, now=lambda: 1_700_000_000.0
        )

    def record_event(self, name: str = "p", reason: EventReason = EventReason.BIND_FAILED) -> None:
        self.writer.record_pod_event(ledger_pod(name), reason, "text")

    async def send(self) -> None:
        """Let the writer send everything that is queued."""
        task = asyncio.create_task(self.writer.run())
        await self.writer.wait_until_written()
        task.cancel()

    def dropped(self, cause: str) -> float:
        return float(self.metrics.events_dropped.labels(cause)._value.get())


@pytest.fixture
async def harness() -> EventHarness:
    return EventHarness()


async def test_an_event_names_object_reason_and_message(harness: EventHarness) -> None:
    harness.record_event()
    await harness.send()
    ((namespace, event),) = harness.api.events
    assert namespace == "default"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "uid": "p",
        "namespace": "default",
    }
    assert (event["reason"], event["type"], event["message"]) == ("GPUMemoryBindFailed", "Warning", "text")
    assert event["firstTimestamp"] == "2023-11-14T22:13:20Z"


async def test_events_of_nodes_go_to_the_default_namespace(harness: EventHarness) -> None:
    """The API server refuses them elsewhere."""
    harness.writer.record_node_event("gpu-0", EventReason.OVERCOMMITTED, "text")
    await harness.send()
    assert harness.api.events[0][0] == "default"
    assert harness.api.events[0][1]["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "gpu-0",
        "uid": "gpu-0",
    }


async def test_the_same_event_is_sent_once_in_five_minutes(harness: EventHarness) -> None:
    for second in (0.0, 100.0, 299.0, 301.0):
        harness.seconds = second
        harness.record_event()
    await harness.send()
    assert len(harness.api.events) == 2
    assert harness.dropped("repeated") == 2


async def test_a_different_reason_or_pod_makes_a_different_event(harness: EventHarness) -> None:
    harness.record_event("p")
    harness.record_event("q")
    harness.record_event("p", EventReason.UNASSIGNED_POD)
    await harness.send()
    assert len(harness.api.events) == 3


async def test_each_card_of_a_node_has_its_own_event(harness: EventHarness) -> None:
    """Whatever the text counts: one of the same card is the same."""
    for card, text in ((0, "card 0 holds 16"), (1, "card 1 holds 16"), (0, "card 0 holds 17"), (None, "another")):
        harness.writer.record_node_event("gpu-0", EventReason.OVERCOMMITTED, text, card=card)
    await harness.send()
    assert [event["message"] for _, event in harness.api.events] == ["card 0 holds 16", "card 1 holds 16", "another"]
    assert harness.dropped("repeated") == 1


async def test_at_most_ten_events_a_second_are_sent(harness: EventHarness) -> None:
    for number in range(25):
        harness.record_event(f"p{number}")
    harness.seconds = 0.5  # half a second later there is room for five
    for number in range(25, 35):
        harness.record_event(f"p{number}")
    await harness.send()
    assert len(harness.api.events) == 15
    assert harness.dropped("rate") == 20


async def test_normal_events_leave_room_for_warnings(harness: EventHarness) -> None:
    for number in range(20):
        harness.writer.record_pod_event(ledger_pod(f"p{number}"), EventReason.ASSIGNED, "text", is_warning=False)
    harness.record_event("failed")
    await harness.send()
    reasons = [event["reason"] for _, event in harness.api.events]
    assert reasons == ["GPUMemoryAssigned"] * 5 + ["GPUMemoryBindFailed"]


async def test_a_rate_limited_event_may_be_sent_later(harness: EventHarness) -> None:
    for number in range(11):
        harness.record_event(f"p{number}")
    harness.seconds = 1.0
    harness.record_event("p10")
    await harness.send()
    assert len(harness.api.events) == 11


async def test_a_failing_api_server_is_counted_and_the_writer_continues(harness: EventHarness) -> None:
    harness.api.is_down = True
    harness.record_event("p")
    await harness.send()
    harness.api.is_down = False
    harness.record_event("q")
    await harness.send()
    assert harness.dropped("failed") == 1
    assert [event["involvedObject"]["name"] for _, event in harness.api.events] == ["q"]  # type: ignore[index]  # JSON


async def test_event_names_are_unique(harness: EventHarness) -> None:
    harness.record_event("p")
    harness.record_event("q")
    await harness.send()
    names = [event["metadata"]["name"] for _, event in harness.api.events]  # type: ignore[index]  # JSON
    assert len(set(names)) == 2
