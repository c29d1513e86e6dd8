"""A container over its limit on a node that only watches: logged, and named on its Node only where the settings ask for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.fakes.api import FakeKubeApi
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.own_node import MetadataEntries
from vrampack.agent.cluster.refused_pods import RefusedPodsPublisher
from vrampack.agent.events import AgentEventReason
from vrampack.agent.limits import overuse_reporter
from vrampack.agent.limits.contract import OverLimit
from vrampack.agent.limits.overuse_reporter import OveruseReporter
from vrampack.agent.nvml.errors import DriverError
from vrampack.cards.pod import Pod
from vrampack.kube.events import EventRecorder

OVER = OverLimit("uid-a", "main", "GPU-0", 5000, 4301, 20.0, should_evict=False)
POD = LocalPod(Pod("uid-a", "ml", "a", node_name="n"), {}, {}, is_static=False, is_controlled=True)


class FakeOveruseEvents(EventRecorder):
    """Records the events that it is asked to write."""

    def __init__(self) -> None:
        super().__init__(FakeKubeApi(), component="t", on_dropped=lambda _: None, clock=lambda: 0.0, now=lambda: 0.0)
        self.told: list[tuple[str, str]] = []

    def record_pod_event(self, pod: Pod, reason: str, text: str, *, is_warning: bool = True) -> None:
        assert is_warning
        self.told.append((f"{pod} {reason}", text))


class OveruseHarness:
    """One pod that is over its limit, and where that is reported."""

    def __init__(self, over: OverLimit) -> None:
        self.over = over
        self.error: DriverError | None = None
        self.events = FakeOveruseEvents()
        self.written: list[str | None] = []
        publisher = RefusedPodsPublisher()
        publisher.attach_node(self)
        self.overuse = OveruseReporter(self._look, publisher, self.events, find_pod={"uid-a": POD}.get)

    def set_desired(self, entries: MetadataEntries) -> None:
        """Stands in for `OwnNode`."""
        self.written.extend(entries.values())

    async def _look(self) -> tuple[OverLimit, ...]:
        if self.error is not None:
            raise self.error
        return (self.over,)


async def test_overuse_is_reported_with_usage_and_limit() -> None:
    post = OveruseHarness(OVER)
    await post.overuse.report_overuse()
    text = "container main uses 5000 MiB of card GPU-0, but its limit is 4301 MiB"
    assert post.events.told == [(f"ml/a {AgentEventReason.OVER_LIMIT}", text)]
    assert post.written == [None]


async def test_an_overusing_pod_is_listed_on_the_node_when_configured() -> None:
    """Once, until it is below its limit again or gone."""
    post = OveruseHarness(replace(OVER, should_evict=True))
    await post.overuse.report_overuse()
    await post.overuse.report_overuse()
    assert post.written == ['{"v":1,"pods":{"uid-a":{"reason":"over_limit"}}}']
    post.over = OVER
    await post.overuse.report_overuse()
    assert post.written[1:] == [None]


async def test_a_pod_is_unlisted_while_its_use_cannot_be_measured() -> None:
    post = OveruseHarness(replace(OVER, should_evict=True))
    await post.overuse.report_overuse()
    post.error = DriverError("hung")
    with pytest.raises(DriverError):
        await post.overuse.report_overuse()
    assert post.written[1:] == [None]


async def test_a_deleted_pod_is_no_longer_listed_as_overusing() -> None:
    post = OveruseHarness(replace(OVER, should_evict=True))
    await post.overuse.report_overuse()
    post.overuse.forget_pod("uid-a")
    assert post.written[1:] == [None]


async def test_a_failed_check_does_not_stop_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the error."""
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
async def test_an_unknown_pod_is_not_listed_as_overusing(uid: str) -> None:
    post = OveruseHarness(replace(OVER, pod_uid=uid, should_evict=True))
    await post.overuse.report_overuse()
    assert (post.events.told, post.written) == ([], [None])
