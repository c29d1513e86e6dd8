"""The answers to kubelet: a hint that never fails, no card from Allocate, and MIG instances as cards of their own."""

from __future__ import annotations

import grpc
import pytest

from tests.agent.agent_harness import AgentHarness, agent_harness
from tests.agent.pod_lifecycle import assert_fence_agrees, put_bound_pod, run_pod, start_refused
from tests.fakes.kubelet.scripted_plugin import MEMORY
from tests.support.scripted_driver import scripted_mig_instance
from vrampack.agent.device_plugin.preferred_allocation import PreferredAllocation
from vrampack.agent.kubelet.device_ids import WantedUnits
from vrampack.agent.kubelet.generated import deviceplugin_pb2 as api


def plugin_of(world: AgentHarness) -> object:
    connection = world.kubelet.life.registrar.endpoints[MEMORY].connection
    assert connection is not None
    return connection.plugin


async def preferred(world: AgentHarness, available: list[str], must: list[str], size: int) -> list[str]:
    asked = api.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
    )
    request = api.PreferredAllocationRequest(container_requests=[asked])
    answer: api.PreferredAllocationResponse = await plugin_of(world).GetPreferredAllocation(request)  # type: ignore[attr-defined]
    return list(answer.container_responses[0].deviceIDs)


ASKED: dict[str, tuple[list[str], list[str], int, int]] = {
    "nothing": ([], [], 0, 0),
    "more than there is": (["GPU-0::1"], [], 5, 1),
    "ids of another plugin": (["GPU-0-_-1", "x", ""], ["x"], 2, 2),
    "a card that is gone": (["GPU-9::1", "GPU-9::2"], [], 1, 1),
    "less than must be in": (["GPU-0::1", "GPU-0::2"], ["GPU-0::1", "GPU-0::2"], 1, 1),
}


@pytest.mark.parametrize(("available", "must", "size", "count"), ASKED.values(), ids=ASKED)
async def test_preferred_allocation_never_fails(available: list[str], must: list[str], size: int, count: int) -> None:
    """An error would fail the pod for good."""
    async with agent_harness() as world:
        damaged = put_bound_pod(world, "damaged", change={"vrampack.dev/allocation": "{"})
        put_bound_pod(world, "empty", is_recorded=False, units=5)
        await world.wait_until(lambda: world.agent.components.pod_cache.find_pod(damaged.uid) is not None)
        assert len(await preferred(world, available, must, size)) == count


async def test_the_ids_of_the_oldest_bind_of_that_size_are_proposed_first_and_once() -> None:
    async with agent_harness(16130, 16130) as world:
        put_bound_pod(world, "late", cards=[1], bound_at=10)
        put_bound_pod(world, "early", cards=[0], bound_at=9)
        put_bound_pod(world, "small", cards=[1], units=3, bound_at=1)
        await world.wait_until(lambda: len(world.agent.components.pod_cache.list_pods()) == 3)
        steering = PreferredAllocation(world.agent.components.pod_cache.list_pods)
        assert [steering.guess_wanted_units(4) for _ in range(3)] == [
            WantedUnits({"GPU-0": 4}),
            WantedUnits({"GPU-1": 4}),
            None,
        ]
        steering.forget_pod("uid-late")
        assert steering.guess_wanted_units(4) == WantedUnits({"GPU-1": 4})


async def test_allocate_names_no_card_and_refuses_foreign_ids() -> None:
    async with agent_harness() as world:
        ask = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=["GPU-0::0"])])
        answer = await plugin_of(world).Allocate(ask)  # type: ignore[attr-defined]
        assert [dict(each.envs) for each in answer.container_responses] == [{"NVIDIA_VISIBLE_DEVICES": "void"}]
        ask.container_requests[0].devices_ids.append("GPU-9::0")
        with pytest.raises(grpc.aio.AioRpcError, match="device GPU-9::0 is not one of this node's"):
            await plugin_of(world).Allocate(ask)  # type: ignore[attr-defined]
        assert world.read_metric("vrampack_agent_allocate_errors_total") == 1


async def test_the_environment_of_the_pod_beats_that_of_the_plugin_and_of_the_image() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p", units={"main": 4, "other": 0})
        assert await world.kubelet.admit(pod)
        image = {"NVIDIA_VISIBLE_DEVICES": "all"}
        started = await world.kubelet.start(pod, "main", image_env=image)
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        assert (await world.kubelet.start(pod, "other", image_env=image)).env["NVIDIA_VISIBLE_DEVICES"] == "void"


async def test_mig_instances_are_cards_of_their_own() -> None:
    """4864 MiB are 4 units each; their parent is no card."""
    async with agent_harness(starts=False) as world:
        world.driver.present = (scripted_mig_instance("a", slot=1), scripted_mig_instance("b", slot=2))
        await world.start_agent()
        assert world.kubelet.allocatable(MEMORY) == 8
        assert {each.partition("::")[0] for each in world.kubelet.healthy_ids(MEMORY)} == {"MIG-a", "MIG-b"}
        record = {
            "vrampack.dev/allocation": '{"v":1,"cards":[{"uuid":"MIG-b","index":102,"units":4}],'
            '"containers":{"main":[{"uuid":"MIG-b","units":4,"mib":4864}]}}',
            "visible-devices.vrampack.dev/main": "MIG-b",
            "limit-mib.vrampack.dev/main": "4864",
        }
        first, second = (put_bound_pod(world, name, is_recorded=False, change=record) for name in ("first", "second"))
        assert (await run_pod(world, first)).env["NVIDIA_VISIBLE_DEVICES"] == "MIG-b"
        assert "card MIG-b has 4 units, running pods hold 4" in await start_refused(world, second)


async def test_a_container_whose_limit_cannot_be_enforced_does_not_start() -> None:
    async with agent_harness() as world:
        back_end, world.agent.components.enforcement._back_end = world.agent.components.enforcement._back_end, None
        pod = put_bound_pod(world, "p")
        assert "no back end on this node can enforce its limit" in await start_refused(world, pod)
        assert not world.agent.components.fence.count_held_units()
        world.agent.components.enforcement._back_end = back_end
        await run_pod(world, pod)


async def test_starts_and_refusals_are_counted_and_the_fence_agrees() -> None:
    async with agent_harness(16130, 16130) as world:
        await run_pod(world, put_bound_pod(world, "a", units=10))
        await start_refused(world, put_bound_pod(world, "b", units=10))
        assert world.read_metric("vrampack_agent_starts_total", result="ok") == 1
        assert world.read_metric("vrampack_agent_starts_total", result="overcommitted") == 1
        await assert_fence_agrees(world)
