"""A loop that stalled is behind: its sockets are full of what happened meanwhile. Verbs wait until those events are read."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest

from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.ledger import Ledger
from extender.state.sync import Freshness, ProblemReporter, build_reflectors, run_reflectors
from tests.fakes.api import FakeKubeApi
from tests.fakes.http1 import chunk
from tests.fakes.upstream import FakeUpstream, http_reply
from tests.support.builders import UNIT_MIB
from tests.support.manifest_builders import pod_manifest
from tests.support.recorded_api_calls import open_api
from vrampack.kube.client import Api

MISSED_PODS = 1252
STALL_SECONDS = 5.0
TURN_SECONDS = 0.01
"""The most that the test's clock counts for one turn of the loop: a machine that is slow is no stall."""
WITHIN_SECONDS = 20.0
A_NODE: dict[str, object] = {"metadata": {"name": "n", "resourceVersion": "2"}}


class StalledLoopHarness:
    """Both reflectors, a server that writes without waiting for the loop, and a clock that shows no other stalls than the test's."""

    def __init__(self, server: FakeUpstream, api: Api) -> None:
        self.server = server
        self.seconds = 0.0
        self._turned_at = time.monotonic()
        metrics = ExtenderMetrics("test")
        settings = ExtenderConfiguration(apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration")
        events = ExtenderEventRecorder(FakeKubeApi(), metrics, clock=self.clock, now=self.clock)
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=self.clock)
        self.freshness = Freshness(clock=self.clock, now=self.clock, stale_seconds=120)
        reporter = ProblemReporter(metrics, events)
        self.reflectors = build_reflectors(api, self.ledger, self.freshness, reporter, metrics, settings)

    def clock(self) -> float:
        return self.seconds

    def send_events(self, resource: str, *objects: dict[str, object]) -> None:
        """Write events at once, into the socket: the loop need not run for it."""
        lines = [json.dumps({"type": "ADDED", "object": each}).encode() + b"\n" for each in objects]
        self.server.watches[f"/api/v1/{resource}"].write(b"".join(chunk(line) for line in lines))

    @property
    def pods(self) -> int:
        return len(list(self.ledger.list_pods()))

    @property
    def is_ready(self) -> bool:
        return not self.freshness.find_unready_reason()

    async def until_ready(self) -> None:
        """Let the loop turn until verbs would be answered."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while not self.is_ready:
                await self.turn()

    async def turn(self) -> None:
        await asyncio.sleep(0)
        now = time.monotonic()
        self.seconds += min(now - self._turned_at, TURN_SECONDS)
        self._turned_at = now


def a_pod(name: str) -> dict[str, object]:
    """Bound to a node of its own, and of the size of a real one."""
    body = pod_manifest(name, "4", uid=name, namespace="default", annotations={"padding": "x" * 2000})
    body["spec"]["nodeName"] = f"node-of-{name}"
    body["metadata"]["resourceVersion"] = "2"
    return body


@pytest.fixture
async def setting() -> AsyncIterator[StalledLoopHarness]:
    empty = http_reply(b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}')
    async with FakeUpstream(replies=[empty, empty]) as server, open_api(f"http://127.0.0.1:{server.port}") as api:
        harness = StalledLoopHarness(server, api)
        task = asyncio.create_task(run_reflectors(*harness.reflectors, harness.freshness))
        async with asyncio.timeout(WITHIN_SECONDS):
            while len(server.watches) < 2 or not harness.is_ready:
                await harness.turn()
            harness.send_events("pods", a_pod("first"))
            while harness.pods < 1:
                await harness.turn()
        yield harness
        task.cancel()
        await asyncio.wait([task])


async def test_after_a_stall_verbs_wait_until_missed_events_are_read(setting: StalledLoopHarness) -> None:
    assert setting.is_ready
    setting.send_events("pods", *(a_pod(f"p{at}") for at in range(MISSED_PODS)))
    setting.send_events("nodes", A_NODE)
    setting.seconds += STALL_SECONDS

    assert setting.freshness.find_unready_reason() == "the watch of nodes was not read for 5 s"
    await setting.until_ready()
    assert setting.pods == 1 + MISSED_PODS


async def test_after_a_stall_without_events_the_extender_is_soon_ready(setting: StalledLoopHarness) -> None:
    setting.seconds += STALL_SECONDS
    assert not setting.is_ready
    await setting.until_ready()


async def test_verbs_wait_for_the_next_watch_if_one_ended_during_a_stall(
    setting: StalledLoopHarness,
) -> None:
    ended = setting.server.watches.pop("/api/v1/pods")
    ended.write(chunk(b""))
    ended.close()
    setting.seconds += STALL_SECONDS

    async with asyncio.timeout(WITHIN_SECONDS):
        while "/api/v1/pods" not in setting.server.watches:
            assert not setting.is_ready
            await setting.turn()
    assert not setting.is_ready
    setting.send_events("pods", *(a_pod(f"p{at}") for at in range(MISSED_PODS)))
    await setting.until_ready()
    assert setting.pods == 1 + MISSED_PODS


async def test_a_stream_of_events_without_a_gap_does_not_look_like_a_stall(setting: StalledLoopHarness) -> None:
    """20 events a second for 20 s, none of which finds the reader at rest for long."""
    for at in range(400):
        setting.send_events("pods", a_pod(f"p{at % 10}"))
        setting.send_events("nodes", A_NODE)
        setting.seconds += 0.05
        assert setting.is_ready
        for _ in range(5):
            await setting.turn()
    assert setting.pods == 1 + 10
