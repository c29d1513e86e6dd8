"""Two pods on the same room: one starts, the other is refused, told so and evicted; and who else is refused, and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.agent.places import agrees, put, refusal, refused_for, remove, run
from tests.agent.world import World, a_world

SOON: Mapping[str, Any] = {"refused": {"after_seconds": 0.05}}
KEPT: Mapping[str, Any] = {"refused": {"after_seconds": 0.05, "action": "keep"}}


def is_terminating(world: World, name: str) -> bool:
    return "deletionTimestamp" in world.api.get("pods", name)["metadata"]


def events(world: World, reason: str) -> list[str]:
    return [event["message"] for event in world.api.list_events() if event["reason"] == reason]


async def test_on_a_node_of_one_card_kubelet_counts_the_units_already() -> None:
    """8 + 8 of 15 units. Two extenders oversell a card past kubelet only where another one has units left."""
    async with a_world(**SOON) as world:
        first, second = put(world, "first", units=8), put(world, "second", units=8)
        started = await run(world, first)
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        assert not await world.kubelet.admit(second)
        assert "Requested: 8, Available: 7" in second.message
        await agrees(world)


async def test_of_two_pods_on_one_room_one_starts_and_the_other_is_refused_told_and_evicted() -> None:
    """Both records are perfect; two extenders wrote them."""
    async with a_world(16130, 16130, **SOON) as world:
        first, second = put(world, "first", units=8), put(world, "second", units=8)
        await run(world, first)
        message = await refusal(world, second)
        text = "card GPU-0 has 15 units, running pods hold 8, and this pod was given 8: it was bound past the ledger"
        assert f"desc = {text}" in message
        assert refused_for(world, "overcommitted") == 1
        await world.until(lambda: events(world, "GPUMemoryStartRefused") == [f"container main: {text}"])
        await world.until(lambda: is_terminating(world, "second"))
        await world.until(lambda: len(events(world, "GPUMemoryEvicted")) == 1)
        assert not is_terminating(world, "first")
        remove(world, second)
        await agrees(world)


async def test_both_started_at_once_one_gets_through() -> None:
    async with a_world(16130, 16130, **KEPT) as world:
        pods = [put(world, name, units=8) for name in ("a", "b")]
        for pod in pods:
            assert await world.kubelet.admit(pod)
        outcomes = await asyncio.gather(*(world.kubelet.try_start(pod, "main") for pod in pods))
        assert sorted(type(each).__name__ for each in outcomes) == ["Started", "Waiting"]
        assert world.agent._fence.count_held_units() == {"GPU-0": 8}


async def test_a_leaving_pod_is_evicted_once() -> None:
    """It may take its whole grace period to end."""
    async with a_world(16130, 16130, **SOON) as world:
        await run(world, put(world, "first", units=8))
        await refusal(world, put(world, "second", units=8))
        await world.until(lambda: is_terminating(world, "second"))
        for _ in range(3):
            await look_much_later(world)
        assert world.counted("vrampack_agent_evictions_total") == 1


async def test_in_keep_mode_it_waits() -> None:
    async with a_world(16130, 16130, **KEPT) as world:
        first, second = put(world, "first", units=8), put(world, "second", units=8)
        await run(world, first)
        await refusal(world, second)
        await look_much_later(world)
        assert not is_terminating(world, "second")
        remove(world, first)
        await world.until(lambda: not world.agent._fence.count_held_units())
        await run(world, second)
        await agrees(world)


async def test_a_bare_pod_is_kept_and_told() -> None:
    """Nobody would make it again."""
    async with a_world(16130, 16130, **SOON) as world:
        await run(world, put(world, "first", units=8))
        await refusal(world, put(world, "second", units=8, owner=None))
        await world.until(lambda: len(events(world, "GPUMemoryStartRefused")) == 1)
        await look_much_later(world)
        assert not is_terminating(world, "second")


async def test_a_pod_for_which_room_came_free_is_not_evicted() -> None:
    async with a_world(16130, 16130, **SOON) as world:
        first, second = put(world, "first", units=8), put(world, "second", units=8)
        await run(world, first)
        await refusal(world, second)
        remove(world, first)
        await world.until(lambda: not world.agent._fence.count_held_units())
        await look_much_later(world)
        assert not is_terminating(world, "second")
        await run(world, second)


async def test_a_namesake_on_another_node_is_left_alone() -> None:
    """Kubelet has not heard that its pod was deleted by force; the new pod of that name runs elsewhere, in good health."""
    async with a_world(**SOON) as world:
        old = put(world, "web-0", uid="old")
        await run(world, old)
        world.api.delete("pods", "web-0", grace_seconds=0)
        await world.until(lambda: not world.agent._fence.count_held_units())
        put(world, "web-0", uid="new", node="elsewhere")
        world.kubelet.exit(old, "main")
        assert "bound to node elsewhere, this is gpu-0" in str(await world.kubelet.try_start(old, "main"))
        await look_much_later(world)
        assert not is_terminating(world, "web-0")
        assert events(world, "GPUMemoryStartRefused") == []


async def look_much_later(world: World) -> None:
    """What refusals do when every delay is over."""
    refusals = world.agent._rejected_pods
    for each in refusals._rejected.values():
        each.next_attempt_at -= 3600
    await refusals.evict_due_pods()
