"""The plugin's life with kubelet: on a kubelet that really dials, restarts, refuses and hangs up."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from pathlib import Path

import grpc
import pytest

from tests.agent.agent_harness import AgentHarness, agent_harness
from tests.fakes.kubelet.scripted_plugin import MEMORY, ScriptedPlugin
from vrampack.agent.device_plugin import conflicting_plugins, registration
from vrampack.backoff import Backoff

SLOTS = 15  # floor(16130 / 1024)


def sockets(world: AgentHarness) -> set[str]:
    """The agent's own, beside kubelet's."""
    return {path.name for path in world.kubelet.plugins_folder.glob("vrampack-*.sock")}


def endpoints(world: AgentHarness) -> list[str]:
    return [each.endpoint for each in world.kubelet.history.registrations]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_the_plugin_serves_before_it_registers() -> None:
    """Kubelet dials back and asks for options while Register is still pending: it would time out otherwise."""
    async with agent_harness(starts=False) as world:
        world.kubelet.doors.register_answer.hold()
        await world.launch_agent()
        await world.kubelet.doors.register_answer.reached()
        await world.kubelet.registered(MEMORY)
        assert not world.agent.find_unready_reason().startswith("stopping")
        assert world.agent.find_unready_reason() == "not registered with kubelet"
        world.kubelet.doors.register_answer.release()
        await world.wait_until(lambda: world.agent.find_unready_reason() == "")


async def test_the_plugin_registers_all_units_of_the_node() -> None:
    async with agent_harness() as world:
        assert world.kubelet.allocatable(MEMORY) == SLOTS
        assert world.kubelet.healthy_ids(MEMORY) == {f"GPU-0::{number}" for number in range(SLOTS)}


@pytest.mark.timeout(300)
async def test_fifty_kubelet_restarts_are_detected_in_two_seconds_without_leaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight at the normal polling rate; leaks do not depend on it, so the others come quickly."""
    async with agent_harness() as world:
        await restarted(world)  # creates what is created only once
        files, threads = open_files(), threading.active_count()
        waits = [await restarted(world) for _ in range(8)]
        assert sorted(waits)[4] < 2  # the median: a busy machine may be late now and then
        monkeypatch.setattr(registration, "POLL_SECONDS", 0.02)
        for _ in range(42):
            await restarted(world)
        # Each registration has a name of its own; on a busy machine the agent may register once more.
        assert len(set(endpoints(world))) == len(endpoints(world)) >= 52
        assert sockets(world) == {endpoints(world)[-1]}
        assert threading.active_count() <= threads + 4  # the pool for blocking calls may have grown
        gc.collect()
        await world.wait_until(lambda: open_files() <= files + 4)


async def restarted(world: AgentHarness) -> float:
    """Seconds from kubelet's new socket until it has our devices again."""
    times = len(world.kubelet.history.registrations)
    await world.kubelet.restart()
    begun = time.monotonic()
    await world.kubelet.registered(MEMORY, times=times + 1)
    await world.wait_until(lambda: world.agent.find_unready_reason() == "")
    return time.monotonic() - begun


async def test_late_return_of_kubelet_is_detected_within_two_seconds() -> None:
    """However long it was away, and however many attempts failed."""
    async with agent_harness(starts=False) as world:
        world.kubelet.doors.register.refuse("not yet", times=100)
        await world.launch_agent()
        await world.wait_until(lambda: "failures=4" in world.log_text, seconds=20)
        world.kubelet.doors.register.refuse("", times=0)
        assert await restarted(world) < 2


async def test_refused_registration_is_retried_with_longer_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "BACKOFF", Backoff(0.02, 0.05))
    async with agent_harness(starts=False) as world:
        world.kubelet.doors.register.refuse("no room", times=3)
        await world.start_agent()
        assert world.log_text.count("registration failed failures=") == 3
        assert "no room" in world.log_text
        assert len(endpoints(world)) == 1
        assert sockets(world) == set(endpoints(world))  # those of refused attempts are gone


async def test_without_room_for_its_socket_the_agent_is_not_ready_and_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is too long fails as a full file system does: gRPC says only that it could not bind."""
    monkeypatch.setattr(registration, "BACKOFF", Backoff(0.02, 0.05))
    async with agent_harness(starts=False) as world:
        with monkeypatch.context() as patch:
            patch.setattr("vrampack.agent.device_plugin.registration.secrets.token_hex", lambda _: "x" * 100)
            await world.launch_agent()
            reason = "no socket can be made in"
            await world.wait_until(lambda: reason in world.agent.find_unready_reason() or not world.is_running)
            assert world.is_running
            assert world.agent.find_unready_reason().startswith("not registered with kubelet: ")
            assert world.agent.find_unready_reason().endswith("AF_UNIX path too long")
        await world.kubelet.registered(MEMORY)
        await world.wait_until(lambda: world.agent.find_unready_reason() == "")


async def test_hanging_registration_is_abandoned_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "REGISTER_SECONDS", 0.3)
    monkeypatch.setattr(registration, "BACKOFF", Backoff(0.02, 0.05))
    async with agent_harness(starts=False) as world:
        world.kubelet.doors.register.hold()
        await world.launch_agent()
        await world.wait_until(lambda: "DEADLINE_EXCEEDED" in world.log_text)
        world.kubelet.doors.register.release()
        await world.kubelet.registered(MEMORY)
        await world.wait_until(lambda: world.agent.find_unready_reason() == "")


async def test_plugin_registers_again_after_kubelet_closes_the_stream() -> None:
    async with agent_harness() as world:
        await world.kubelet.cut_connections(MEMORY)
        await world.kubelet.registered(MEMORY, times=2)
        assert world.read_metric("vrampack_agent_streams_closed_total") == 1


async def test_the_plugin_registers_again_after_a_second_registrant_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubelet ends the newest registration when *any* stream of the resource ends. Ours stays open, but kubelet ignores it."""
    monkeypatch.setattr(conflicting_plugins, "REREGISTER_SECONDS", (0.2, 600))
    monkeypatch.setattr(conflicting_plugins, "CHECK_INTERVAL_SECONDS", 0.05)
    async with agent_harness() as world:
        async with ScriptedPlugin(world.kubelet.plugins_folder, ["other::0"], name="other.sock") as other:
            await other.register()
            await world.kubelet.registered(MEMORY, times=2)
        await world.kubelet.until(lambda: world.kubelet.allocatable(MEMORY) == 0)
        world.patch_node_status({MEMORY: str(SLOTS)}, allocatable={MEMORY: "0"})  # as kubelet says it 10 s later
        await world.kubelet.until(lambda: world.kubelet.allocatable(MEMORY) == SLOTS, timeout_seconds=20)


async def test_plugin_registers_again_after_its_socket_is_removed() -> None:
    async with agent_harness() as world:
        for name in sockets(world):
            (world.kubelet.plugins_folder / name).unlink()
        await world.kubelet.registered(MEMORY, times=2)


async def test_a_clean_stop_leaves_no_socket() -> None:
    async with agent_harness() as world:
        await world.stop_agent()
        assert sockets(world) == set()
        await world.wait_until(lambda: world.kubelet.allocatable(MEMORY) == 0)


async def test_gap_during_an_agent_restart_is_under_three_seconds() -> None:
    """From the moment the agent is told to stop until kubelet has its devices again."""
    async with agent_harness() as world:
        gaps = []
        for _ in range(3):
            begun = time.monotonic()
            await world.stop_agent()
            await world.start_agent()
            gaps.append(time.monotonic() - begun)
            assert world.kubelet.allocatable(MEMORY) == SLOTS
    assert min(gaps) < 3  # each includes the agent's own waits


async def test_a_node_without_cards_is_idle_and_ready() -> None:
    async with agent_harness(starts=False) as world:
        world.driver.present = ()
        await world.launch_agent()
        await world.wait_until(lambda: "agent idle" in world.log_text)
        assert world.agent.find_unready_reason() == ""
        assert endpoints(world) == []
        assert world.read_annotation() is None  # a node that never had cards publishes nothing
        assert world.is_running


async def test_cards_that_appear_later_are_registered() -> None:
    async with agent_harness(starts=False) as world:
        present, world.driver.present = world.driver.present, ()
        await world.launch_agent()
        await world.wait_until(lambda: world.agent.find_unready_reason() == "")
        world.driver.present = present
        await world.kubelet.registered(MEMORY)


async def test_plugin_registers_once_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often kubelet's socket is looked at."""
    looks = 0
    look = registration.KubeletRegistration._find_kubelet_socket

    def counted(self: registration.KubeletRegistration) -> tuple[int, int] | None:
        nonlocal looks
        looks += 1
        return look(self)

    monkeypatch.setattr(registration, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(registration.KubeletRegistration, "_find_kubelet_socket", counted)
    async with agent_harness() as world:
        await world.wait_until(lambda: looks > 50)
        assert len(endpoints(world)) == 1
        assert world.read_metric("vrampack_agent_registrations_total") == 1


async def test_register_sends_what_kubelet_needs_to_call_back() -> None:
    async with agent_harness() as world:
        async with grpc.aio.insecure_channel(f"unix:{world.kubelet.plugins_folder / endpoints(world)[0]}") as channel:
            async with asyncio.timeout(5):
                await channel.channel_ready()
        options = world.kubelet.life.registrar.endpoints[MEMORY].options
        assert options is not None
        assert options.pre_start_required
        assert options.get_preferred_allocation_available
