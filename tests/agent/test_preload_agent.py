"""A whole agent that enforces limits with the library: what kubelet is told, how processes are answered, what people see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.agent.agent_harness import NODE, AgentHarness, agent_harness
from tests.agent.pod_lifecycle import (
    change_limit,
    put_bound_pod,
    remove_pod,
    report_status,
    restart_container,
    start_container,
    start_refused,
)
from tests.fakes.kubelet.pods import KubeletPod
from tests.support.preload_clients import MIB, PreloadClientProcess
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload.wire import LibraryAnswer, LibraryVerdict, MessageKind
from vrampack.agent.status.schema import LimitsStatus
from vrampack.backoff import Backoff

LIMIT_MIB = 4301  # 16130 * 4 / 15
LABELS = {"node": NODE, "UUID": "GPU-0", "gpu": "0", "namespace": "default", "pod": "p", "container": "main"}


@asynccontextmanager
async def a_node() -> AsyncIterator[AgentHarness]:
    async with agent_harness(starts=False, enforcement="preload") as world:
        world.add_library()
        await world.start_agent()
        yield world


@asynccontextmanager
async def a_process(
    world: AgentHarness, pod: KubeletPod, container: str = "main"
) -> AsyncIterator[PreloadClientProcess]:
    """A connected process of that container."""
    program = await PreloadClientProcess.started()
    world.owners[program.pid] = CgroupOwner(pod.uid, pod.states[container].container_id.rpartition("/")[2])
    try:
        await program.open(world.preload.folder / "agent.sock")
        yield program
    finally:
        await program.kill()


async def running(world: AgentHarness) -> KubeletPod:
    pod = put_bound_pod(world, "p")
    assert await world.kubelet.admit(pod), pod.message
    await start_container(world, pod)
    report_status(world, pod)
    return pod


async def test_container_gets_the_library_folder_and_the_loader_file() -> None:
    async with a_node() as world:
        pod = put_bound_pod(world, "p")
        assert await world.kubelet.admit(pod), pod.message
        started = await start_container(world, pod)
        assert started.mount_paths == ("/var/lib/vrampack/preload", "/etc/ld.so.preload")
        assert (world.preload.folder / "libvrampack.so").read_bytes() == b"a library"
        loader = world.preload.folder / "ld.so.preload"
        assert loader.read_text() == "/var/lib/vrampack/preload/libvrampack.so\n"
        assert [path.stat().st_mode & 0o777 for path in (world.preload.folder, loader)] == [0o755, 0o644]


async def test_with_another_back_end_nothing_is_mounted() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p")
        assert await world.kubelet.admit(pod), pod.message
        assert (await start_container(world, pod)).mount_paths == ()


async def test_auto_takes_the_library_where_the_driver_cannot_hold_limits() -> None:
    async with agent_harness(starts=False) as world:
        world.add_library()
        await world.start_agent()
        assert world.read_metric("vrampack_agent_enforcement_info", mode="preload") == 1


async def test_no_card_is_offered_with_a_driver_unknown_to_the_library() -> None:
    async with agent_harness(starts=False, enforcement="preload") as world:
        world.add_library("616.1")
        await world.launch_agent()
        await world.wait_until(
            lambda: (
                "back end preload cannot work here: driver 616.1"
                in world.agent.components.advertisement.current.problem
            )
        )
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})


async def test_a_process_is_limited_by_its_pod_s_record_and_its_usage_is_shown() -> None:
    async with a_node() as world:
        pod = await running(world)
        await world.wait_until(lambda: bool(world.agent.components.usage_collector.take_snapshot().containers))
        (unheard,) = world.agent.components.usage_collector.take_snapshot().containers
        assert (unheard.used_bytes, unheard.limit_bytes, unheard.refused) == (None, LIMIT_MIB * MIB, None)
        async with a_process(world, pod) as program:
            assert await program.ask(MessageKind.HELLO) == LibraryAnswer(
                LibraryVerdict.YES, 1, 1, LIMIT_MIB * MIB, 0, "580.95.05"
            )
            assert (await program.ask(MessageKind.HOLD, (0, 6144))).verdict is LibraryVerdict.NO
            assert (await program.ask(MessageKind.HOLD, (0, 3193))).verdict is LibraryVerdict.YES
            await world.wait_until(lambda: bool(world.agent.components.usage_collector.take_snapshot().containers))
            assert world.read_metric("vrampack_agent_container_memory_used_bytes", **LABELS) == 3193 * MIB
            assert world.read_metric("vrampack_agent_container_memory_limit_bytes", **LABELS) == LIMIT_MIB * MIB
            assert world.read_metric("vrampack_agent_container_refused_allocations_total", **LABELS) == 1
            of_pod = {key: value for key, value in LABELS.items() if key not in ("UUID", "gpu")}
            assert world.read_metric("vrampack_agent_container_processes", **of_pod) == 1
            page = msgspec.json.decode(msgspec.json.encode(world.agent._build_limits_status()), type=LimitsStatus)
            assert (page.node, page.enforcement, page.driver_version, page.connected) == (
                NODE,
                "preload",
                "580.95.05",
                1,
            )
            (shown,) = page.containers
            assert (shown.namespace, shown.pod, shown.container, shown.gpu) == ("default", "p", "main", 0)
            assert [(each.pid, each.held_bytes, each.refused) for each in shown.processes] == [
                (program.pid, 3193 * MIB, 1)
            ]
        await world.wait_until(lambda: world.read_metric("vrampack_agent_container_memory_used_bytes", **LABELS) == 0)
        assert world.read_metric("vrampack_agent_container_memory_peak_bytes", **LABELS) == 3193 * MIB


async def test_series_and_page_forget_a_pod_with_its_last_process() -> None:
    async with a_node() as world:
        pod = await running(world)
        async with a_process(world, pod) as program:
            await program.ask(MessageKind.HELLO)
            await program.ask(MessageKind.HOLD, (0, 100))
            remove_pod(world, pod)
            await world.wait_until(lambda: not world.agent.components.usage_collector.take_snapshot().containers)
            (shown,) = world.agent._build_limits_status().containers
            assert (shown.pod, shown.used_bytes) == ("", 100 * MIB)
        await world.wait_until(lambda: not world.agent._build_limits_status().containers)


async def test_successor_of_a_killed_agent_counts_a_silent_process() -> None:
    async with a_node() as world:
        pod = await running(world)
        async with a_process(world, pod), a_process(world, pod) as other:
            await other.ask(MessageKind.HELLO)
            async with a_process(world, pod) as idle:
                await idle.ask(MessageKind.HELLO)
                assert (await idle.ask(MessageKind.HOLD, (0, 4000))).verdict is LibraryVerdict.YES
                await world.kill_agent()
                await world.start_agent()
                await other.open(world.preload.folder / "agent.sock")
                assert (await other.ask(MessageKind.HELLO)).used_bytes == 4000 * MIB
                assert (await other.ask(MessageKind.HOLD, (0, 302))).verdict is LibraryVerdict.NO  # 4301 - 4000 = 301
            await world.wait_until(
                lambda: (
                    not world.agent._build_limits_status().containers
                    or not world.agent._build_limits_status().containers[0].used_bytes
                )
            )
            assert (await other.ask(MessageKind.HOLD, (0, 4301))).verdict is LibraryVerdict.YES


async def test_a_limit_that_is_changed_holds_from_the_next_allocation_on() -> None:
    async with a_node() as world:
        pod = await running(world)
        async with a_process(world, pod) as program:
            await program.ask(MessageKind.HELLO)
            change_limit(world, pod, 2000)
            await world.wait_until(
                lambda: world.agent.components.workload.get_limits_mib(pod.uid, "main") == {"GPU-0": 2000}
            )
            assert (await program.ask(MessageKind.HOLD, (0, 2001))).verdict is LibraryVerdict.NO
            change_limit(world, pod, LIMIT_MIB)
            await world.wait_until(
                lambda: world.agent.components.workload.get_limits_mib(pod.uid, "main") == {"GPU-0": LIMIT_MIB}
            )
            assert (await program.ask(MessageKind.HOLD, (0, LIMIT_MIB))).verdict is LibraryVerdict.YES


CHANGES: dict[str, tuple[int, dict[str, object]]] = {
    "more than the units stand for": (LIMIT_MIB + 1, {}),
    "other units": (4000, {"units": 5}),
    "another card": (4000, {"uuid": "GPU-9"}),
    "no limit at all": (4000, {"mib": None}),
}


@pytest.mark.parametrize(("mib", "more"), CHANGES.values(), ids=CHANGES)
async def test_record_change_that_the_fence_would_refuse_is_ignored(mib: int, more: dict[str, object]) -> None:
    async with a_node() as world:
        pod = await running(world)
        shown = world.agent.components.pod_cache.find_pod(pod.uid)
        change_limit(world, pod, mib, **more)
        await world.wait_until(lambda: world.agent.components.pod_cache.find_pod(pod.uid) is not shown)
        assert world.agent.components.workload.get_limits_mib(pod.uid, "main") == {"GPU-0": LIMIT_MIB}


async def test_a_restarted_container_starts_at_zero_and_keeps_its_refusal_count() -> None:
    async with a_node() as world:
        pod = await running(world)
        for _ in range(2):
            async with a_process(world, pod) as program:
                assert (await program.ask(MessageKind.HELLO)).used_bytes == 0
                assert (await program.ask(MessageKind.HOLD, (0, 6144))).verdict is LibraryVerdict.NO
            await restart_container(world, pod)
            report_status(world, pod)
        await world.wait_until(
            lambda: world.read_metric("vrampack_agent_container_refused_allocations_total", **LABELS) == 2
        )


async def test_processes_keep_running_unlimited_after_a_switch_from_preload() -> None:
    """Containers keep the library from their start; an agent that does not answer would stop them."""
    async with a_node() as world:
        pod = await running(world)
        await world.kill_agent()
        world.settings["enforcement"] = "watch"
        await world.start_agent()
        async with a_process(world, pod) as program:
            assert (await program.ask(MessageKind.HELLO)).verdict is LibraryVerdict.UNLIMITED
        assert world.agent._build_limits_status() == LimitsStatus(
            node=NODE, enforcement="watch", driver_version="580.95.05"
        )


async def test_a_node_whose_folder_cannot_be_written_offers_nothing() -> None:
    async with agent_harness(starts=False, enforcement="preload") as world:
        world.add_library()
        world.preload.folder.rmdir()
        await world.launch_agent()
        await world.wait_until(
            lambda: "does not exist or cannot be written to" in world.agent.components.advertisement.current.problem
        )


async def test_a_blocked_library_socket_keeps_the_node_unready_until_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vrampack.agent.limits.enforcement_starter.BACKOFF", Backoff(0.01, 0.02))
    async with agent_harness(starts=False, enforcement="preload") as world:
        world.add_library()
        obstacle = world.preload.folder / "agent.sock"
        obstacle.mkdir()
        await world.launch_agent()
        await world.wait_until(
            lambda: "enforcement: [Errno 21]" in world.agent.components.advertisement.current.problem
        )
        obstacle.rmdir()
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        await running(world)


async def test_a_pod_without_a_record_is_still_refused() -> None:
    async with a_node() as world:
        assert "has no record" in await start_refused(world, put_bound_pod(world, "p", is_recorded=False))
