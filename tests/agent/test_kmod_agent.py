"""A whole agent that enforces limits with the kernel module: what the module is told, what may start, what people see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agent.agent_harness import NODE, AgentHarness, agent_harness
from tests.agent.pod_lifecycle import (
    change_limit,
    put_bound_pod,
    remove_pod,
    report_status,
    start_container,
    start_refused,
)
from tests.fakes.kubelet.pods import KubeletPod
from tests.fakes.kubelet.scripted_plugin import MEMORY
from tests.support.simulated_kmod import MIB
from vrampack.agent.limits import enforcement
from vrampack.agent.status.schema import LimitedProcess, ModuleStatus
from vrampack.backoff import Backoff
from vrampack.cards.request import REQUEST_WORDS

UID = "1d3a9a10-0000-4000-8000-000000000001"
LIMIT_MIB = 4301  # 16130 * 4 / 15
LABELS = {"node": NODE, "UUID": "GPU-0", "gpu": "0", "namespace": "default", "pod": "p", "container": "main"}
LOOK_SECONDS = 0.02


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here waits for a check."""
    monkeypatch.setattr(enforcement, "RECONCILE_SECONDS", LOOK_SECONDS)


@asynccontextmanager
async def a_node() -> AsyncIterator[AgentHarness]:
    async with agent_harness(starts=False, enforcement="kmod") as world:
        world.load_simulated_module()
        await world.start_agent()
        yield world


async def running(world: AgentHarness, name: str = "p", uid: str = UID) -> KubeletPod:
    pod = put_bound_pod(world, name, uid=uid)
    world.make_cgroup(pod)
    await world.kubelet.registered(MEMORY)
    assert await world.kubelet.admit(pod), pod.message
    await start_container(world, pod)
    report_status(world, pod)
    return pod


async def test_pod_is_registered_before_it_starts_and_its_usage_is_shown() -> None:
    async with a_node() as world:
        pod = await running(world)
        assert world.module.limits() == {UID: {0: LIMIT_MIB}}
        assert world.module.instances[UID].identity == f"cgroup={world.make_cgroup(pod).stat().st_ino}"
        world.module.set_usage(UID, 0, 3193, pid=812, refused=1)
        await world.wait_until(
            lambda: world.read_metric("vrampack_agent_container_memory_used_bytes", **LABELS) == 3193 * MIB
        )
        assert world.read_metric("vrampack_agent_container_memory_limit_bytes", **LABELS) == LIMIT_MIB * MIB
        assert world.read_metric("vrampack_agent_container_memory_peak_bytes", **LABELS) == 3193 * MIB
        assert world.read_metric("vrampack_agent_container_refused_allocations_total", **LABELS) == 1
        assert world.read_metric("vrampack_agent_enforcement_info", mode="kmod") == 1
        page = world.agent._build_limits_status()
        assert page.module == ModuleStatus("0.1.0", True, "580.95.05", "two devices", "guarded", 1)  # noqa: FBT003
        (shown,) = page.containers
        assert (shown.pod, shown.container, shown.limit_bytes) == ("p", "main", LIMIT_MIB * MIB)
        assert shown.processes == (LimitedProcess(812, 3193 * MIB, 0),)


def read_instances(world: AgentHarness) -> tuple[list[int | None], bool]:
    """The published instances of each card, and whether containers have some of their own."""
    published = json.loads(world.read_annotation() or "{}")
    return [card.get("instances") for card in published.get("cards", ())], published.get("hook", False)


async def test_the_node_publishes_how_many_limits_its_cards_can_hold() -> None:
    async with a_node() as world:
        await world.wait_until(lambda: read_instances(world) == ([25], False))
        world.module.most[0] = 20
        await world.wait_until(lambda: read_instances(world) == ([20], False))
        assert json.loads(world.read_annotation() or "{}")["serves"] == sorted(REQUEST_WORDS)


async def test_the_next_agent_publishes_them_from_the_start() -> None:
    """Nothing is written: meanwhile the extender would place more pods than it can limit."""
    async with a_node() as world:
        await world.wait_until(lambda: read_instances(world) == ([25], False))
        await world.kill_agent()
        await world.start_agent()
        await running(world)
        assert read_instances(world) == ([25], False)
        assert world.read_metric("vrampack_agent_node_writes_total") == 0


async def test_a_runtime_with_the_hook_takes_instances_for_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "containerd.json"
    spec.write_text(json.dumps({"hooks": {"createRuntime": [{"path": "/opt/vrampack/bin/vrampack-hook"}]}}))
    monkeypatch.setattr("vrampack.agent.limits.kmod.row.RUNTIME_SPECS", (spec,))
    async with a_node() as world:
        await world.wait_until(lambda: read_instances(world) == ([25], True))


async def test_a_changed_record_is_pushed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only at the next check."""
    monkeypatch.setattr(enforcement, "RECONCILE_SECONDS", 3600)
    async with a_node() as world:
        pod = await running(world)
        change_limit(world, pod, 2000)
        await world.wait_until(lambda: world.module.limits() == {UID: {0: 2000}})


async def test_detached_module_stops_new_pods_but_no_running_pod() -> None:
    async with a_node() as world:
        await running(world)
        world.module.is_attached = False
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        assert "limits cannot be enforced: the kernel module is detached" in world.agent.find_unready_reason()
        assert world.module.limits() == {UID: {0: LIMIT_MIB}}
        world.module.is_attached = True
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        assert world.agent.find_unready_reason() == ""


async def test_pod_is_refused_when_the_module_detached_since_the_last_check() -> None:
    async with a_node() as world:
        pod = put_bound_pod(world, "p", uid=UID)
        world.make_cgroup(pod)
        assert await world.kubelet.admit(pod), pod.message
        world.module.is_attached = False
        assert "its memory limit cannot be put in force: the kernel module is detached" in await start_refused(
            world, pod
        )
        world.module.is_attached = True
        await start_container(world, pod)
        assert world.module.limits() == {UID: {0: LIMIT_MIB}}


async def test_a_reloaded_module_gets_the_limits_of_running_pods() -> None:
    """The driver was exchanged: the agent ended with it, and the next one finds an empty module."""
    async with a_node() as world:
        await running(world)
        await world.kill_agent()
        world.load_simulated_module("580.105.08")
        await world.start_agent()
        await world.wait_until(lambda: world.module.limits() == {UID: {0: LIMIT_MIB}})


async def test_a_deleted_pod_is_removed_from_the_module() -> None:
    async with a_node() as world:
        pod = await running(world)
        remove_pod(world, pod)
        world.make_cgroup(pod).rmdir()
        await world.wait_until(lambda: world.module.instances == {})


async def test_a_node_without_the_module_offers_nothing_until_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrampack.agent.limits.enforcement_starter.BACKOFF", Backoff(LOOK_SECONDS, LOOK_SECONDS))
    async with agent_harness(starts=False, enforcement="kmod") as world:
        world.driver.version = "580.95.05"
        await world.launch_agent()
        await world.wait_until(
            lambda: (
                "back end kmod cannot work here: /proc/cgpu_km is"
                in world.agent.components.advertisement.current.problem
            )
        )
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        world.load_simulated_module()
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        await running(world)
        assert world.module.limits() == {UID: {0: LIMIT_MIB}}


async def test_agent_started_with_a_detached_module_waits_instead_of_using_preload() -> None:
    """The driver is being upgraded; the library would be available."""
    async with agent_harness(starts=False) as world:
        world.add_library()
        world.load_simulated_module()
        world.module.is_attached = False
        await world.launch_agent()
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        world.module.is_attached = True
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        await running(world)
        assert world.module.limits() == {UID: {0: LIMIT_MIB}}


async def test_an_unknown_driver_keeps_the_node_from_offering() -> None:
    async with agent_harness(starts=False, enforcement="kmod") as world:
        world.load_simulated_module("616.1")
        await world.launch_agent()
        await world.wait_until(
            lambda: (
                "kmod cannot work here: driver 616.1, the module"
                in world.agent.components.advertisement.current.problem
            )
        )


async def test_confidential_computing_keeps_the_node_from_offering() -> None:
    async with agent_harness(starts=False, enforcement="kmod") as world:
        world.load_simulated_module()
        world.driver.has_confidential_computing = True
        await world.launch_agent()
        why = "enforcement: back end kmod cannot work here: confidential computing is on"
        await world.wait_until(lambda: why in world.agent.components.advertisement.current.problem)
        assert why in world.agent.find_unready_reason()


async def test_auto_takes_the_module_before_the_library() -> None:
    async with agent_harness(starts=False) as world:
        world.add_library()
        world.load_simulated_module()
        await world.start_agent()
        assert world.read_metric("vrampack_agent_enforcement_info", mode="kmod") == 1
        await running(world)
        assert world.module.limits() == {UID: {0: LIMIT_MIB}}
