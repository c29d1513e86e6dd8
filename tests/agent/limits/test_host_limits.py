"""The hook's answers without Kubernetes, and what is logged once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from vrampack.agent.host.containers import HostContainers
from vrampack.agent.host.limits import HostLimits
from vrampack.agent.inventory.known_cards import CardPresence
from vrampack.agent.limits.cgroups import CgroupTree
from vrampack.agent.limits.contract import Applied, AppliedState, BackEnd, LimitTarget, Scope, Traits
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.hook_server import HookQuestion
from vrampack.cards.node import CardFacts

T4 = CardFacts(0, 14, 15109, "GPU-a", "Tesla T4")
SIX = ("ALIYUN_COM_GPU_MEM_CONTAINER=6", "ALIYUN_COM_GPU_MEM_DEV=15")
MOUNT = "/var/lib/vrampack/preload"


class FakeBackEnd(BackEnd):
    """A back end that records what it is told, and refuses if a test says so."""

    traits = Traits(Scope.CONTAINER, "at once", "nothing")
    hook_mount = MOUNT

    def __init__(self) -> None:
        self.limits: dict[str, dict[str, int]] = {}
        self.refuses = False

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:
        assert scope is Scope.CONTAINER
        if self.refuses:
            raise LimitError("not now")
        self.limits[str(target)] = dict(limits)
        return Applied(AppliedState.IN_FORCE, "a test")

    async def release(self, target: LimitTarget) -> None:
        del self.limits[str(target)]


class HostLimitsHarness:
    def __init__(self, folder: Path) -> None:
        self.mount = folder / "cgroup"
        self.mount.mkdir()
        (self.mount / "cgroup.controllers").touch()
        self.back_end = FakeBackEnd()
        self.presence = CardPresence.LISTED
        self.tenants = HostContainers(folder / "tenants", CgroupTree(self.mount))
        self.tenants.restore_running()
        self.limits = HostLimits(
            CgroupTree(self.mount),
            self.tenants,
            self.back_end,
            cards=lambda: (T4,),
            find_presence=lambda _: self.presence,
        )

    def asks(self, name: str, *env: str) -> HookQuestion:
        """The question of a container whose first process waits in its cgroup."""
        folder = self.mount / "docker" / name
        folder.mkdir(parents=True)
        (folder / "cgroup.events").write_text("populated 1\n")
        return HookQuestion(2, 7, name, "", "", "", "", "unified", f"/docker/{name}", env)

    def ends(self, name: str) -> None:
        (self.mount / "docker" / name / "cgroup.events").write_text("populated 0\n")


@pytest.fixture
def host(tmp_path: Path) -> HostLimitsHarness:
    return HostLimitsHarness(tmp_path)


async def test_limit_from_the_environment_is_applied_and_the_library_mounted(host: HostLimitsHarness) -> None:
    assert await host.limits.apply_limit(host.asks("c1", *SIX)) == MOUNT
    assert host.back_end.limits == {"c1": {"GPU-a": 6043}}


async def test_a_disabled_container_starts_unlimited_and_is_logged(
    host: HostLimitsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    assert await host.limits.apply_limit(host.asks("c1", *SIX, "CGPU_DISABLE=1")) == ""
    assert host.back_end.limits == {}
    assert "container unlimited container=c1 reason=CGPU_DISABLE" in caplog.text


async def test_an_ignored_weight_is_logged_once(host: HostLimitsHarness, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("c1", "c2"):
        await host.limits.apply_limit(host.asks(name, *SIX, "ALIYUN_COM_GPU_SCHD_WEIGHT=4"))
    assert caplog.text.count("variable ignored name=ALIYUN_COM_GPU_SCHD_WEIGHT") == 1


POD = "/kubepods/besteffort/pod1d3a9a10-0000-4000-8000-000000000001/" + "ab" * 32
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "a pod's cgroup": ({"cgroup": POD}, "it belongs to a pod"),
    "a pod's name": ({"pod": "app-0"}, "it belongs to a pod"),
    "a pod's uid": ({"uid": "u-1"}, "it belongs to a pod"),
    "a cgroup that is none": ({"cgroup": "/docker/../c1"}, "is not a container's cgroup"),
    # it does not send the environment, and would not mount the library
    "an older hook": ({"v": 1, "env": ()}, "this vrampack-hook is older than the agent"),
}


@pytest.mark.parametrize(("words", "why"), REFUSED.values(), ids=REFUSED)
async def test_a_container_with_an_untrusted_environment_does_not_start(
    host: HostLimitsHarness, words: dict[str, object], why: str
) -> None:
    with pytest.raises(LimitError, match=why):
        await host.limits.apply_limit(msgspec.structs.replace(host.asks("c1", *SIX), **words))
    assert host.tenants.list_containers() == ()


@pytest.mark.parametrize("presence", [CardPresence.MISSING, CardPresence.UNKNOWN])
async def test_a_card_that_the_driver_does_not_list_goes_to_no_container(
    host: HostLimitsHarness, presence: CardPresence
) -> None:
    host.presence = presence
    with pytest.raises(LimitError, match="card GPU-a is "):
        await host.limits.apply_limit(host.asks("c1", *SIX))
    assert host.tenants.list_containers() == ()


async def test_a_refused_limit_holds_no_memory(host: HostLimitsHarness) -> None:
    host.back_end.refuses = True
    with pytest.raises(LimitError, match="not now"):
        await host.limits.apply_limit(host.asks("c1", *SIX))
    assert host.tenants.list_containers() == ()


async def test_ended_containers_are_released_before_the_next_is_checked(host: HostLimitsHarness) -> None:
    whole = ("ALIYUN_COM_GPU_MEM_CONTAINER=15", SIX[1])
    await host.limits.apply_limit(host.asks("c1", *whole))
    host.ends("c1")
    await host.limits.apply_limit(host.asks("c2", *whole))
    assert host.back_end.limits == {"c2": {"GPU-a": 15109}}


async def test_the_next_agent_applies_limits_of_running_containers_again(host: HostLimitsHarness) -> None:
    await host.limits.apply_limit(host.asks("c1", *SIX))
    host.back_end.limits.clear()
    await host.limits.restore_limits()
    assert host.back_end.limits == {"c1": {"GPU-a": 6043}}


async def test_a_limit_that_cannot_be_restored_is_logged(
    host: HostLimitsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await host.limits.apply_limit(host.asks("c1", *SIX))
    host.back_end.refuses = True
    await host.limits.restore_limits()
    assert "limit not applied container=c1 reason=not now" in caplog.text
