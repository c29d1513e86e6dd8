"""A pod that the API server no longer has holds its cards while its cgroup exists on the node."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.agent.agent_harness import NODE, AgentHarness, agent_harness
from tests.agent.pod_lifecycle import count_refusals, fence_of, put_bound_pod, report_status, run_pod, start_refused
from tests.fakes.kubelet.pods import KubeletPod
from tests.fakes.kubelet.starting import StartedContainer
from tests.support.builders import ledger_pod
from vrampack.agent.admission import lingering_pods, prestart
from vrampack.agent.admission.fence import AdmittedStart, ContainerStart, Fence
from vrampack.agent.admission.lingering_pods import EMPTY_SECONDS, OVERDUE_SECONDS, LingeringPods
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.kubelet.podresources import DeviceAllocation
from vrampack.agent.limits.cgroups import CgroupTree

TWO = (16130, 16130)
UID = "1d3a9a10-77ab-4c0d-9e1f-0242ac110002"
LOW = UID.replace("-", "_")
LINGERING = "vrampack_agent_lingering_pods"


def delete_by_force(world: AgentHarness, pod: KubeletPod) -> Path:
    """Delete the pod, whose containers do not end; return its cgroup."""
    folder = world.make_cgroup(pod)
    (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    world.api.delete("pods", pod.name, grace_seconds=0)
    return folder


async def test_force_deleted_pod_holds_its_card_until_its_cgroup_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """12 + 12 of 15 units: the second one starts when the node, and not the API server, has let go of the first."""
    monkeypatch.setattr(prestart, "RELEASE_WAIT_SECONDS", 0.0)
    async with agent_harness(*TWO) as world:
        first = put_bound_pod(world, "first", units=12)
        await run_pod(world, first)
        folder = delete_by_force(world, first)
        second = put_bound_pod(world, "second", units=12)
        await world.wait_until(lambda: world.read_metric(LINGERING) == 1)
        text = (
            "card GPU-0 has 15 units, running pods hold 12, and this pod was given 12: "
            "the node still runs default/first, which was deleted"
        )
        assert text in await start_refused(world, second)
        assert count_refusals(world, "lingering") == 1
        world.kubelet.exit(first, "main")
        assert "has no pod default/first" in str(await world.kubelet.try_start(first, "main"))
        shutil.rmtree(folder)
        await world.wait_until(lambda: not fence_of(world).count_held_units())
        await run_pod(world, second)
        assert world.read_metric(LINGERING) == 0


def test_a_start_that_fails_after_its_pod_was_deleted_releases_nothing() -> None:
    """Another container of the pod may still run."""
    fence = Fence(NODE)
    fence.hold_units(UID, {"GPU-0": 12})
    fence.mark_lingering(UID, "ml/p")
    pod = LocalPod(ledger_pod("p", node=NODE, uid=UID), {}, {}, is_static=False, is_controlled=True)
    start = ContainerStart(DeviceAllocation("ml", "p", "side", frozenset()), pod)
    assert not fence.withdraw_start(start, AdmittedStart(UID, None))
    assert fence.count_held_units() == {"GPU-0": 12}


async def test_a_start_waits_briefly_for_an_ending_pod() -> None:
    """Kubelet says that a pod has ended before it removes the cgroup, and would ask again after 10 s only."""
    async with agent_harness(*TWO) as world:
        first, second = put_bound_pod(world, "first", units=12), put_bound_pod(world, "second", units=12)
        await run_pod(world, first)
        folder = world.make_cgroup(first)
        world.kubelet.finish(first)
        report_status(world, first)
        await world.wait_until(lambda: world.read_metric(LINGERING) == 1)
        assert await world.kubelet.admit(second)
        starting = asyncio.create_task(world.kubelet.try_start(second, "main"))
        await world.wait_until(lambda: world.agent.components.lingering_pods.waiting_count == 1)
        folder.rmdir()
        assert isinstance(await starting, StartedContainer)
        assert count_refusals(world, "lingering") == 0
        assert fence_of(world).count_held_units() == {"GPU-0": 12}


async def test_the_next_agent_still_counts_a_lingering_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server does not know it any more; kubelet's checkpoint does."""
    monkeypatch.setattr(prestart, "RELEASE_WAIT_SECONDS", 0.0)
    async with agent_harness(*TWO) as world:
        first = put_bound_pod(world, "first", units=12)
        await run_pod(world, first)
        await world.kill_agent()
        folder = delete_by_force(world, first)
        await world.start_agent()
        assert fence_of(world).count_held_units() == {"GPU-0": 12}
        assert f"the node still runs {first.uid}" in await start_refused(
            world, put_bound_pod(world, "second", units=12)
        )
        shutil.rmtree(folder)
        await world.wait_until(lambda: not fence_of(world).count_held_units())


async def test_pod_is_released_on_deletion_when_cgroups_are_not_visible() -> None:
    async with agent_harness(*TWO) as world:
        await world.wait_until(lambda: "pod cgroups not visible" in world.log_text)
        first = put_bound_pod(world, "first", units=12)
        await run_pod(world, first)
        world.api.delete("pods", "first", grace_seconds=0)
        await world.wait_until(lambda: not fence_of(world).count_held_units())


async def test_a_pod_that_lingers_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering_pods, "OVERDUE_SECONDS", 0.0)
    async with agent_harness(*TWO) as world:
        first = put_bound_pod(world, "first", units=12)
        await run_pod(world, first)
        folder = delete_by_force(world, first)
        text = f"default/first is deleted and its cgroup {folder} still exists: its cards stay held until that is gone"
        await world.wait_until(
            lambda: (
                [(each["message"], each["involvedObject"]["name"]) for each in world.api.list_events()].count(
                    (text, NODE)
                )
                == 1
            )
        )


LAYOUTS = {
    "v2, cgroupfs": ("", f"kubepods/burstable/pod{UID}"),
    "v2, systemd": ("", f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{LOW}.slice"),
    "v1, cgroupfs": ("memory", f"kubepods/pod{UID}"),
    "v1, systemd": ("memory", f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice"),
}


class LingeringHarness:
    """One pod of 12 units, which the API server no longer has."""

    def __init__(self, mount: Path, hierarchy: str, path: str) -> None:
        self._is_unified = not hierarchy
        if self._is_unified:
            (mount / "cgroup.controllers").touch()
        self.folder = mount / hierarchy / path
        self.folder.mkdir(parents=True)
        self.now = 0.0
        self.told: list[str] = []
        self.fence = Fence(NODE)
        self.lingering = LingeringPods(
            self.fence, CgroupTree(mount), on_overdue=self.told.append, clock=lambda: self.now
        )

    def set_process(self, *, is_there: bool) -> None:
        if self._is_unified:
            (self.folder / "cgroup.events").write_text(f"populated {int(is_there)}\n")
        (self.folder / "cgroup.procs").write_text("7\n" if is_there else "")

    async def is_held(self) -> bool:
        await self.lingering.check_pods()
        return bool(self.fence.count_held_units())


@pytest.mark.parametrize(("hierarchy", "path"), LAYOUTS.values(), ids=LAYOUTS)
async def test_cgroup_without_processes_keeps_the_card_held_for_a_minute(
    tmp_path: Path, hierarchy: str, path: str
) -> None:
    """One with a process, for ever: the process holds the card's memory."""
    harness = LingeringHarness(tmp_path, hierarchy, path)
    harness.set_process(is_there=True)
    await harness.lingering.restore_pods({UID: {"GPU-0": 12}})
    harness.now = 10 * EMPTY_SECONDS
    assert await harness.is_held()
    harness.set_process(is_there=False)
    assert await harness.is_held()
    harness.now += EMPTY_SECONDS - 1
    assert await harness.is_held()
    harness.now += 1
    assert not await harness.is_held()
    assert len(harness.told) == 1
    assert OVERDUE_SECONDS <= 10 * EMPTY_SECONDS


async def test_a_pod_no_longer_on_the_node_is_not_restored(tmp_path: Path) -> None:
    harness = LingeringHarness(tmp_path, *LAYOUTS["v2, systemd"])
    harness.folder.rmdir()
    await harness.lingering.restore_pods({UID: {"GPU-0": 12}})
    assert not harness.fence.count_held_units()
