"""A container over its limit on a node where nobody holds limits: said, and evicted only if that was asked for."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.fakes.api import FakeKubeApi
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.events import AgentEventReason
from vrampack.agent.limits import overuse_reporter
from vrampack.agent.limits.contract import OverLimit
from vrampack.agent.limits.overuse_reporter import OveruseReporter
from vrampack.agent.nvml.errors import DriverError
from vrampack.cards.pod import Pod
from vrampack.kube.errors import RefusedError
from vrampack.kube.events import EventRecorder

OVER = OverLimit("uid-a", "main", "GPU-0", 5000, 4301, 20.0, should_evict=False)
POD = LocalPod(Pod("uid-a", "ml", "a", node_name="n"), {}, {}, is_static=False, is_controlled=True)


class FakeEvictions:
    """Takes evictions, or answers what it was told to."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.refusal: RefusedError | None = None

    async def evict(self, namespace: str, name: str, uid: str, *, timeout_seconds: float) -> None:  # noqa: ARG002 - the real one's shape
        if self.refusal is not None:
            raise self.refusal
        self.taken.append(uid)


class FakeOveruseEvents(EventRecorder):
    """Remembers what it was to write."""

    def __init__(self) -> None:
        super().__init__(FakeKubeApi(), component="t", on_dropped=lambda _: None, clock=lambda: 0.0, now=lambda: 0.0)
        self.told: list[tuple[str, str]] = []

    def record_pod_event(self, pod: Pod, reason: str, text: str, *, is_warning: bool = True) -> None:
        assert is_warning
        self.told.append((f"{pod} {reason}", text))


class OveruseHarness:
    """One pod that is over, and who hears of it."""

    def __init__(self, over: OverLimit) -> None:
        self.over = over
        self.evictions, self.events, self.counted = FakeEvictions(), FakeOveruseEvents(), 0
        self.overuse = OveruseReporter(
            self._look, self.evictions, self.events, find_pod={"uid-a": POD}.get, on_evicted=self._count
        )

    async def _look(self) -> tuple[OverLimit, ...]:
        return (self.over,)

    def _count(self) -> None:
        self.counted += 1


async def test_it_is_said_with_both_numbers() -> None:
    post = OveruseHarness(OVER)
    await post.overuse.report_overuse()
    text = "container main uses 5000 MiB of card GPU-0, its limit is 4301 MiB"
    assert post.events.told == [(f"ml/a {AgentEventReason.OVER_LIMIT}", text)]
    assert post.evictions.taken == []


async def test_it_is_evicted_once_when_that_was_asked_for() -> None:
    post = OveruseHarness(replace(OVER, should_evict=True))
    await post.overuse.report_overuse()
    await post.overuse.report_overuse()
    assert (post.evictions.taken, post.counted) == (["uid-a"], 1)


async def test_an_eviction_that_a_budget_refuses_is_tried_again() -> None:
    post = OveruseHarness(replace(OVER, should_evict=True))
    post.evictions.refusal = RefusedError(429, "TooManyRequests", "a budget")
    await post.overuse.report_overuse()
    assert post.counted == 0
    post.evictions.refusal = None
    await post.overuse.report_overuse()
    assert (post.evictions.taken, post.counted) == (["uid-a"], 1)


async def test_a_look_that_fails_ends_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it stumbles over."""
    monkeypatch.setattr(overuse_reporter, "CHECK_INTERVAL_SECONDS", 0.0)
    failures: list[Exception] = [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a cgroup's name"), DriverError("hung")]
    looked = asyncio.Event()

    async def list_after_failures() -> tuple[OverLimit, ...]:
        if failures:
            raise failures.pop()
        looked.set()
        return (OVER,)

    post = OveruseHarness(OVER)
    monkeypatch.setattr(post.overuse, "_list_over_limit", list_after_failures)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(post.overuse.run())
        await looked.wait()
        running.cancel()


@pytest.mark.parametrize("uid", ["uid-b"])
async def test_a_pod_that_is_gone_is_not_evicted(uid: str) -> None:
    post = OveruseHarness(replace(OVER, pod_uid=uid, should_evict=True))
    await post.overuse.report_overuse()
    assert (post.events.told, post.evictions.taken) == ([], [])
