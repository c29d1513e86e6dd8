"""Two pods on the same room: one starts, the other is refused, told so and named on the Node; and which others are refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from tests.agent.agent_harness import AgentHarness, agent_harness
from tests.agent.pod_lifecycle import (
    assert_fence_agrees,
    count_refusals,
    put_bound_pod,
    remove_pod,
    run_pod,
    start_refused,
)
from vrampack.cards import well_known
from vrampack.cards.refused_pods import read_refused

SOON: Mapping[str, Any] = {"refused": {"after_seconds": 0.05}}
KEPT: Mapping[str, Any] = {"refused": {"after_seconds": 0.05, "action": "keep"}}


def refusals(world: AgentHarness) -> dict[str, str]:
    """Reasons by uid, as published on the Node; the extender evicts by them."""
    text = world.api.get("nodes", "gpu-0")["metadata"].get("annotations", {}).get(well_known.NODE_REFUSED)
    if text is None:
        return {}
    named, problems = read_refused(text)
    assert problems == ()
    return named


def events(world: AgentHarness, reason: str) -> list[str]:
    return [event["message"] for event in world.api.list_events() if event["reason"] == reason]


async def test_kubelet_rejects_the_second_pod_on_a_node_with_one_card() -> None:
    """8 + 8 of 15 units. Two extenders oversell a card past kubelet only where another one has units left."""
    async with agent_harness(**SOON) as world:
        first, second = put_bound_pod(world, "first", units=8), put_bound_pod(world, "second", units=8)
        started = await run_pod(world, first)
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        assert not await world.kubelet.admit(second)
        assert "Requested: 8, Available: 7" in second.message
        await assert_fence_agrees(world)


async def test_the_second_of_two_pods_for_the_same_memory_is_refused_and_listed() -> None:
    """Both records are perfect; two extenders wrote them."""
    async with agent_harness(16130, 16130, **SOON) as world:
        first, second = put_bound_pod(world, "first", units=8), put_bound_pod(world, "second", units=8)
        await run_pod(world, first)
        message = await start_refused(world, second)
        text = "card GPU-0 has 15 units, running pods hold 8, and this pod was given 8: it was bound without the extender's ledger"
        assert f"desc = {text}" in message
        assert count_refusals(world, "overcommitted") == 1
        await world.wait_until(lambda: events(world, "GPUMemoryStartRefused") == [f"container main: {text}"])
        await world.wait_until(lambda: refusals(world) == {second.uid: "overcommitted"})
        remove_pod(world, second)
        await world.wait_until(lambda: refusals(world) == {})
        await assert_fence_agrees(world)


async def test_of_two_simultaneous_starts_for_the_same_memory_one_succeeds() -> None:
    async with agent_harness(16130, 16130, **KEPT) as world:
        pods = [put_bound_pod(world, name, units=8) for name in ("a", "b")]
        for pod in pods:
            assert await world.kubelet.admit(pod)
        outcomes = await asyncio.gather(*(world.kubelet.try_start(pod, "main") for pod in pods))
        assert sorted(type(each).__name__ for each in outcomes) == ["StartedContainer", "WaitingContainer"]
        assert world.agent.components.fence.count_held_units() == {"GPU-0": 8}


async def test_in_keep_mode_a_refused_pod_waits_for_room() -> None:
    async with agent_harness(16130, 16130, **KEPT) as world:
        first, second = put_bound_pod(world, "first", units=8), put_bound_pod(world, "second", units=8)
        await run_pod(world, first)
        await start_refused(world, second)
        await look_much_later(world)
        assert refusals(world) == {}
        remove_pod(world, first)
        await world.wait_until(lambda: not world.agent.components.fence.count_held_units())
        await run_pod(world, second)
        await assert_fence_agrees(world)


async def test_a_pod_is_unlisted_once_it_has_room() -> None:
    async with agent_harness(16130, 16130, **SOON) as world:
        first, second = put_bound_pod(world, "first", units=8), put_bound_pod(world, "second", units=8)
        await run_pod(world, first)
        await start_refused(world, second)
        await look_much_later(world)
        await world.wait_until(lambda: refusals(world) == {second.uid: "overcommitted"})
        remove_pod(world, first)
        await world.wait_until(lambda: not world.agent.components.fence.count_held_units())
        await look_much_later(world)
        assert world.agent.components.own_node._desired["annotations", well_known.NODE_REFUSED] is None
        await world.wait_until(lambda: refusals(world) == {})
        await run_pod(world, second)


async def test_pod_with_the_same_name_on_another_node_is_left_alone() -> None:
    """Kubelet does not know yet that its pod was force-deleted; the new pod of that name runs elsewhere, healthy."""
    async with agent_harness(**SOON) as world:
        old = put_bound_pod(world, "web-0", uid="old")
        await run_pod(world, old)
        world.api.delete("pods", "web-0", grace_seconds=0)
        await world.wait_until(lambda: not world.agent.components.fence.count_held_units())
        put_bound_pod(world, "web-0", uid="new", node="elsewhere")
        world.kubelet.exit(old, "main")
        assert "bound to node elsewhere, but this is gpu-0" in str(await world.kubelet.try_start(old, "main"))
        assert not world.agent.components.rejected_pods._rejected  # what the Node and events say of it is written later
        await look_much_later(world)
        assert refusals(world) == {}
        assert events(world, "GPUMemoryStartRefused") == []


async def look_much_later(world: AgentHarness) -> None:
    """What refusals do when every delay is over."""
    rejected = world.agent.components.rejected_pods
    rejected._clock = lambda: time.monotonic() + 300
    rejected.publish_pods()
