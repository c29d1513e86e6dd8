"""A whole agent and the createRuntime hook: when it listens for the hook, and what people see of the answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.agent.agent_harness import agent_harness
from vrampack.agent.limits import enforcement_starter


def install_hook(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `docs/limits.md` has it for containerd."""
    spec = folder / "containerd.json"
    spec.write_text(json.dumps({"hooks": {"createRuntime": [{"path": "/opt/vrampack/bin/vrampack-hook"}]}}))
    monkeypatch.setattr("vrampack.agent.limits.enforcement_starter.RUNTIME_SPECS", (spec,))


async def test_a_hook_that_nothing_needs_is_answered_all_the_same() -> None:
    """Its silence would stop every container of the node."""
    async with agent_harness(starts=False, enforcement="none") as world:
        world.hook_socket.parent.mkdir()
        await world.start_agent()
        reader, writer = await asyncio.open_unix_connection(world.hook_socket)
        writer.write(b"no question\n")
        assert json.loads(await reader.readline())["ok"] is False
        writer.close()
        assert world.read_metric("vrampack_agent_hook_answers_total", result="refused") == 1


async def test_without_a_hook_nothing_listens_for_one() -> None:
    async with agent_harness(enforcement="none") as world:
        assert not world.hook_socket.parent.exists()
        assert world.read_metric("vrampack_agent_hook_answers_total", result="refused") == 0


async def test_where_the_hook_cannot_be_heard_a_node_that_needs_it_offers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_hook(tmp_path, monkeypatch)
    async with agent_harness(starts=False, enforcement="native") as world:
        await world.launch_agent()
        await world.wait_until(lambda: "enforcement: [Errno 2]" in world.agent._advertisement.current.problem)


async def test_an_obstacle_at_the_hooks_socket_holds_the_node_back_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is shown meanwhile; the back end that runs already is not started twice."""
    install_hook(tmp_path, monkeypatch)
    monkeypatch.setattr(enforcement_starter, "RETRY_SECONDS", (0.01, 0.02))
    async with agent_harness(starts=False, enforcement="native") as world:
        (world.hook_socket / "obstacle").mkdir(parents=True)
        await world.launch_agent()
        await world.wait_until(lambda: "enforcement: [Errno " in world.agent._advertisement.current.problem)
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        (world.hook_socket / "obstacle").rmdir()
        world.hook_socket.rmdir()
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        assert world.hook_socket.is_socket()
        assert world.log_text.count("back end selected mode=native") == 1
        _, writer = await asyncio.open_unix_connection(world.hook_socket)
        writer.close()


async def test_limits_that_need_the_hook_are_put_in_force_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_hook(tmp_path, monkeypatch)
    async with agent_harness(starts=False, enforcement="native") as world:
        world.hook_socket.parent.mkdir()
        await world.start_agent()
        assert world.hook_socket.is_socket()
        assert "by the createRuntime hook" in world.log_text
