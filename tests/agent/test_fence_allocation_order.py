"""No order in which kubelet hands out devices makes a container start with a card that its annotation does not name.

`VRAMPACK_SHUFFLED_STARTS=1000` starts more containers; `make soak` does.
"""

from __future__ import annotations

import asyncio
import os
from random import Random

from tests.agent.agent_harness import V100_MIB, AgentHarness, agent_harness
from tests.agent.pod_lifecycle import assert_fence_agrees, put_bound_pod, remove_pod
from tests.fakes.kubelet.pods import KubeletPod
from tests.fakes.kubelet.starting import StartedContainer

STARTS = int(os.environ.get("VRAMPACK_SHUFFLED_STARTS", "200"))
CARDS = 4
PER_CARD = 2
"""Of 7 units on a card of 15: a third container that takes the card finds no room there."""


async def a_round(
    world: AgentHarness, number: int, random: Random, *, is_shuffled: bool
) -> list[tuple[KubeletPod, StartedContainer]]:
    """Pods of one size on all cards: bound, admitted in some order, all started at once, and gone again."""
    places = random.sample([*range(CARDS)] * PER_CARD, CARDS * PER_CARD)
    pods = [
        put_bound_pod(world, f"p{number}-{at}", cards=[card], units=7, bound_at=100 * number + at)
        for at, card in enumerate(places)
    ]
    if is_shuffled:
        await world.kubelet.admit_shuffled(pods)
    else:
        await world.wait_until(lambda: all(world.agent.components.pod_cache.find_pod(pod.uid) for pod in pods))
        for pod in pods:
            await world.kubelet.admit(pod)
    started = await asyncio.gather(*(world.kubelet.start(pod, "main") for pod in pods))
    for pod in pods:
        remove_pod(world, pod)
    await world.wait_until(lambda: not world.agent.components.fence.count_held_units())
    return list(zip(pods, started, strict=True))


def assert_exact(pod: KubeletPod, started: StartedContainer) -> None:
    """Its environment is its annotation (I7), and that is the card of its record."""
    assert started.env["NVIDIA_VISIBLE_DEVICES"] == pod.annotations["visible-devices.vrampack.dev/main"]
    assert started.env["NVIDIA_VISIBLE_DEVICES"] == f"GPU-{pod.annotations['ALIYUN_COM_GPU_MEM_IDX']}"
    assert started.env["NVIDIA_GPU_MEMORY_LIMIT"] == "7527"  # floor(16130 * 7 / 15)


async def test_shuffled_allocations_swap_no_two_cards() -> None:
    """Ids that name another card than the container has are counted, and nothing is corrected."""
    random, differing, count = Random(1), 0, 0
    async with agent_harness(*[V100_MIB] * CARDS) as world:
        for number in range(STARTS // (CARDS * PER_CARD)):
            for pod, started in await a_round(world, number, random, is_shuffled=True):
                assert_exact(pod, started)
                cards = {each.partition("::")[0] for each in started.device_ids}
                differing += cards != {started.env["NVIDIA_VISIBLE_DEVICES"]}
                count += 1
        assert count == STARTS
        assert world.read_metric("vrampack_agent_starts_total", result="ok") == STARTS
        assert world.read_metric("vrampack_agent_id_card_mismatch_total") == differing
        assert differing > STARTS / 10  # otherwise nothing was shuffled
        await assert_fence_agrees(world)


async def test_allocations_in_binding_order_match_kubelets_records() -> None:
    random = Random(1)
    async with agent_harness(*[V100_MIB] * CARDS) as world:
        for number in range(10):
            for pod, started in await a_round(world, number, random, is_shuffled=False):
                assert_exact(pod, started)
        assert world.read_metric("vrampack_agent_id_card_mismatch_total") == 0
