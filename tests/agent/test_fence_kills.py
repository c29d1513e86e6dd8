"""The agent, kubelet and the node die at every moment; afterwards the fence's ledger equals what runs, and no pod was disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.agent.agent_harness import AgentHarness, agent_harness
from tests.agent.pod_lifecycle import (
    assert_fence_agrees,
    fence_of,
    put_bound_pod,
    recount_cards,
    report_status,
    restart_container,
    run_pod,
    start_refused,
)
from tests.fakes.kubelet.scripted_plugin import MEMORY

TWO = (16130, 16130)
Served = Callable[[Any, Any], Awaitable[Any]]  # Any: gRPC's own, passed on


async def dying_in(world: AgentHarness, method: str, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> asyncio.Event:
    """An agent that never answers this call, before or after deciding it; the event is set once it hangs there."""
    await world.launch_agent()
    plugin, reached = world.agent.components.registration._plugin, asyncio.Event()
    decide: Served = getattr(plugin, method)

    async def serve(request: Any, context: Any) -> None:  # noqa: ANN401 - gRPC's own, passed on
        if after:
            await decide(request, context)
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(plugin, method, serve)
    await world.kubelet.registered(MEMORY)
    return reached


async def test_pod_fails_and_the_next_one_works_after_a_kill_during_allocate(monkeypatch: pytest.MonkeyPatch) -> None:
    async with agent_harness(starts=False) as world:
        reached = await dying_in(world, "Allocate", monkeypatch, after=False)
        lost = put_bound_pod(world, "lost")
        admitting = asyncio.create_task(world.kubelet.admit(lost))
        await reached.wait()
        await world.kill_agent()
        assert not await admitting
        assert (lost.phase, lost.reason) == ("Failed", "UnexpectedAdmissionError")
        report_status(world, lost)
        await world.start_agent()
        await run_pod(world, put_bound_pod(world, "next", units=15))
        await assert_fence_agrees(world)


async def test_next_agent_checks_a_start_after_a_kill_between_allocate_and_prestart() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p")
        assert await world.kubelet.admit(pod)
        await world.kill_agent()
        # Asked before its stream has ended, kubelet would say that the call has failed; that is no start either.
        await world.kubelet.until(lambda: world.kubelet.life.registrar.endpoints[MEMORY].is_stopped)
        assert "has been stopped" in str(await world.kubelet.try_start(pod, "main"))
        await world.start_agent()
        assert not fence_of(world).count_held_units()
        await run_pod(world, pod)
        await assert_fence_agrees(world)
        assert fence_of(world).count_held_units() == {"GPU-0": 4}


async def test_nothing_runs_or_is_held_if_the_agent_dies_before_its_approval_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with agent_harness(starts=False) as world:
        reached = await dying_in(world, "PreStartContainer", monkeypatch, after=True)
        pod = put_bound_pod(world, "p")
        assert await world.kubelet.admit(pod)
        starting = asyncio.create_task(world.kubelet.try_start(pod, "main"))
        await reached.wait()
        assert fence_of(world).count_held_units() == {"GPU-0": 4}
        await world.kill_agent()
        assert "PreStartContainer rpc failed" in str(await starting)
        await world.start_agent()
        assert not fence_of(world).count_held_units()
        await run_pod(world, pod)
        await assert_fence_agrees(world)


async def test_next_agent_counts_an_approved_container_once_kubelet_reports_it() -> None:
    """The next agent lists the pods before the status with the container's id is there."""
    async with agent_harness(*TWO) as world:
        pod = put_bound_pod(world, "p", units=8)
        assert await world.kubelet.admit(pod)
        await world.kubelet.start(pod, "main")
        await world.kill_agent()
        await world.start_agent()
        report_status(world, pod)
        await world.wait_until(lambda: fence_of(world).count_held_units() == {"GPU-0": 8})
        await assert_fence_agrees(world)
        assert "running pods hold 8" in await start_refused(world, put_bound_pod(world, "late", units=8))


async def test_a_restarted_agent_counts_running_pods_without_disturbing_them() -> None:
    async with agent_harness(*TWO) as world:
        pods = [put_bound_pod(world, f"p{at}", cards=[at % 2], units=3 + at) for at in range(4)]
        for pod in pods:
            await run_pod(world, pod)
        await assert_fence_agrees(world)
        before = recount_cards(world)
        ids = {pod.name: pod.states["main"].container_id for pod in pods}
        for _ in range(2):
            await world.kill_agent()
            await world.start_agent()
            assert fence_of(world).count_held_units() == {"GPU-0": 8, "GPU-1": 10} == before  # 3 + 5 and 4 + 6
        assert {pod.name: pod.states["main"].container_id for pod in pods} == ids
        assert world.read_metric("vrampack_agent_unfenced_starts_total") == 0
        for pod in pods:
            await restart_container(world, pod)


async def test_a_pod_that_ended_while_the_agent_was_away_holds_nothing() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p")
        await run_pod(world, pod)
        await world.kill_agent()
        world.kubelet.finish(pod)
        report_status(world, pod)
        await world.start_agent()
        assert not fence_of(world).count_held_units()
        await run_pod(world, put_bound_pod(world, "next", units=15))
        await assert_fence_agrees(world)


async def test_fence_is_unchanged_and_checks_starts_after_a_kubelet_restart() -> None:
    async with agent_harness(*TWO) as world:
        pod = put_bound_pod(world, "p", units=8)
        await run_pod(world, pod)
        await world.kubelet.restart()
        await world.kubelet.registered(MEMORY, times=2)
        assert pod.phase == "Running"
        await restart_container(world, pod)
        assert "running pods hold 8" in await start_refused(world, put_bound_pod(world, "late", units=8))
        await assert_fence_agrees(world)


async def test_a_container_that_started_without_prestart_is_counted() -> None:
    """After its restart kubelet does not know the plugin until it registers again."""
    async with agent_harness(*TWO) as world:
        pod = put_bound_pod(world, "p", units=8)
        assert await world.kubelet.admit(pod)
        await world.kubelet.kill()
        await world.kubelet.is_up()
        started = await world.kubelet.start(pod, "main")
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        report_status(world, pod)
        await world.kubelet.registered(MEMORY, times=2)
        await world.wait_until(lambda: fence_of(world).count_held_units() == {"GPU-0": 8})
        assert world.read_metric("vrampack_agent_unfenced_starts_total") == 1
        await world.kubelet.readmit()
        assert "running pods hold 8" in await start_refused(world, put_bound_pod(world, "late", units=8))
        await assert_fence_agrees(world)


async def test_every_start_is_checked_after_a_reboot_without_another_allocate() -> None:
    async with agent_harness(*TWO) as world:
        pods = [put_bound_pod(world, name, cards=[at], units=8) for at, name in enumerate("ab")]
        for pod in pods:
            await run_pod(world, pod)
        given = {pod.name: world.kubelet.device_ids(pod, "main") for pod in pods}
        await world.kill_agent()
        await world.kubelet.reboot()
        await world.start_agent()
        await world.kubelet.readmit()
        checks = len(world.kubelet.calls_of("PreStartContainer"))
        for at, pod in enumerate(pods):
            started = await world.kubelet.start(pod, "main")
            assert started.env["NVIDIA_VISIBLE_DEVICES"] == f"GPU-{at}"
            assert started.device_ids == given[pod.name]
            report_status(world, pod)
        assert len(world.kubelet.calls_of("PreStartContainer")) == checks + 2
        assert len(world.kubelet.calls_of("Allocate")) == 2
        await assert_fence_agrees(world)


async def test_an_agent_that_starts_before_the_api_server_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    """It does not register: an empty ledger would admit any pod. Nor does it check cards, about which the Node may know more."""
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p", units=8)
        await run_pod(world, pod)
        await world.kill_agent()
        await world.api.__aexit__(None, None, None)
        await world.launch_agent()
        await world.wait_until(lambda: caplog.text.count("list failed resource=nodes") > 1)
        assert not world.agent.components.advertisement.current.is_discovered
        assert not world.agent.components.registration.is_registered
        assert pod.states["main"].is_running
        await world.api.__aenter__()
        await world.kubelet.registered(MEMORY, times=2, timeout_seconds=30)
        assert fence_of(world).count_held_units() == {"GPU-0": 8}
        await assert_fence_agrees(world)
