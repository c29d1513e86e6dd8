"""Which pods are over their limit, since when, and when an eviction is requested."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.agent.limits.simulated_driver import SimulatedLimitDriver, build_measure
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.contract import OverLimit
from vrampack.agent.limits.overuse_monitor import OveruseMonitor

OWNERS = {7: CgroupOwner("u-1", "c-1"), 8: CgroupOwner("u-1", "c-2"), 9: CgroupOwner("u-2", "c-3")}
NAMES = {("u-1", "c-1"): "main", ("u-1", "c-2"): "side", ("u-2", "c-3"): "main"}
LIMITS = {("u-1", "main"): {"GPU-a": 4301}, ("u-1", "side"): {"GPU-a": 1000}, ("u-2", "main"): {"GPU-a": 8058}}


@dataclass
class OveruseScene:
    driver: SimulatedLimitDriver = field(default_factory=SimulatedLimitDriver)
    now: float = 100.0

    def watch(self, *, slack_mib: int = 0, evict_after_seconds: float | None = None) -> OveruseMonitor:
        return OveruseMonitor(
            build_measure(self.driver, OWNERS),
            lambda uid, name: LIMITS.get((uid, name)),
            lambda uid, container_id: NAMES.get((uid, container_id)),
            lambda: self.now,
            slack_mib=slack_mib,
            evict_after_seconds=evict_after_seconds,
        )

    def uses(self, **mib_by_pid: int) -> None:
        self.driver.cards = ()
        self.driver.set_usage("GPU-a", **mib_by_pid)


async def test_a_container_over_its_limit_is_listed_with_limit_and_usage() -> None:
    scene = OveruseScene()
    scene.uses(p7=4302, p8=1000, p9=8059)
    assert await scene.watch().list_over_limit() == (
        OverLimit("u-1", "main", "GPU-a", 4302, 4301, 0.0, should_evict=False),
        OverLimit("u-2", "main", "GPU-a", 8059, 8058, 0.0, should_evict=False),
    )


@pytest.mark.parametrize(("used_mib", "is_over"), [(4301 + 512, False), (4301 + 513, True)])
async def test_usage_within_the_slack_is_not_over_the_limit(used_mib: int, is_over: bool) -> None:  # noqa: FBT001
    scene = OveruseScene()
    scene.uses(p7=used_mib)
    assert bool(await scene.watch(slack_mib=512).list_over_limit()) is is_over


async def test_a_lasting_excess_requests_eviction() -> None:
    scene = OveruseScene()
    watch = scene.watch(evict_after_seconds=30)
    scene.uses(p7=5000)
    await watch.list_over_limit()
    scene.now += 29.5
    assert [(over.lasted_seconds, over.should_evict) for over in await watch.list_over_limit()] == [(29.5, False)]
    scene.now += 0.5
    assert [(over.lasted_seconds, over.should_evict) for over in await watch.list_over_limit()] == [(30.0, True)]


async def test_a_new_excess_restarts_the_eviction_clock() -> None:
    scene = OveruseScene()
    watch = scene.watch(evict_after_seconds=30)
    scene.uses(p7=5000)
    await watch.list_over_limit()
    scene.uses(p7=4301)
    assert await watch.list_over_limit() == ()
    scene.now += 60
    scene.uses(p7=5000)
    assert [over.lasted_seconds for over in await watch.list_over_limit()] == [0]


async def test_no_pod_is_evicted_unless_the_settings_say_so() -> None:
    scene = OveruseScene()
    watch = scene.watch()
    scene.uses(p7=5000)
    await watch.list_over_limit()
    scene.now += 1e9
    assert [over.should_evict for over in await watch.list_over_limit()] == [False]


async def test_container_without_a_name_or_limit_is_not_reported() -> None:
    """A container that the pod's status does not show yet, one of another pod, one on a card not its own."""
    scene = OveruseScene()
    scene.driver.set_usage("GPU-other", p7=99_999)
    scene.driver.set_usage("GPU-a", p10=99_999)
    assert await scene.watch().list_over_limit() == ()
