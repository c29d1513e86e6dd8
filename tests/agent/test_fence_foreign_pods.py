"""Older pods, pods that bypassed admission, and forged records: which start, and what the others are told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.agent.agent_harness import AgentHarness, agent_harness
from tests.agent.pod_lifecycle import (
    assert_fence_agrees,
    count_refusals,
    fence_of,
    put_bound_pod,
    restart_container,
    run_pod,
    start_refused,
)
from tests.fakes.kubelet.pods import KubeletPod
from tests.fakes.kubelet.scripted_plugin import MEMORY, ScriptedPlugin

OLD_IDS = [f"GPU-0-_-{unit}" for unit in range(15)]
"""As gpushare's plugin names them."""
GPUSHARE = {"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "4", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
ALLOCATION = "vrampack.dev/allocation"
VISIBLE = "visible-devices.vrampack.dev/main"
LIMIT = "limit-mib.vrampack.dev/main"


@asynccontextmanager
async def after_gpushare(**fields: Any) -> AsyncIterator[tuple[AgentHarness, KubeletPod]]:  # noqa: ANN401 - the builder's own
    """A pod running with devices from gpushare's plugin, and then our agent."""
    async with agent_harness(starts=False) as world:
        pod = put_bound_pod(world, "old", is_recorded=False, has_references=False, **fields)
        async with ScriptedPlugin(world.kubelet.plugins_folder, OLD_IDS) as plugin:
            await plugin.register()
            await world.kubelet.registered(MEMORY)
            await run_pod(world, pod)
        await world.start_agent()
        yield world, pod


async def test_container_of_a_previous_plugin_may_restart_and_is_counted() -> None:
    async with after_gpushare(change=GPUSHARE) as (world, pod):
        assert fence_of(world).count_held_units() == {"GPU-0": 4}
        started = await restart_container(world, pod)
        assert started.env["FROM_PLUGIN"] == "yes"  # kubelet repeats that plugin's answer
        assert count_refusals(world, "older") == 1
        assert world.read_metric("vrampack_agent_unfenced_starts_total") == 0
        await assert_fence_agrees(world)


async def test_unstarted_container_of_a_previous_plugin_starts_by_its_record() -> None:
    """Our agent replaced the plugin between the container's Allocate and its start."""
    async with agent_harness(starts=False) as world:
        pod = put_bound_pod(world, "old", is_recorded=False, has_references=False, change=GPUSHARE)
        async with ScriptedPlugin(world.kubelet.plugins_folder, OLD_IDS) as plugin:
            await plugin.register()
            await world.kubelet.registered(MEMORY)
            assert await world.kubelet.admit(pod)
        await world.start_agent()
        started = await world.kubelet.start(pod, "main")
        assert started.env["FROM_PLUGIN"] == "yes"
        assert fence_of(world).count_held_units() == {"GPU-0": 4}


async def test_unstarted_container_of_a_previous_plugin_needs_a_record() -> None:
    async with agent_harness(starts=False) as world:
        pod = put_bound_pod(world, "old", is_recorded=False, has_references=False)
        async with ScriptedPlugin(world.kubelet.plugins_folder, OLD_IDS) as plugin:
            await plugin.register()
            await world.kubelet.registered(MEMORY)
            assert await world.kubelet.admit(pod)
        await world.start_agent()
        assert "has no record of its cards" in await start_refused(world, pod)


async def test_a_running_container_without_a_record_is_counted_by_its_ids() -> None:
    async with after_gpushare() as (world, _):
        assert fence_of(world).count_held_units() == {"GPU-0": 4}


async def test_new_pod_is_refused_where_an_older_pod_holds_the_memory() -> None:
    """4 of the older pod and 12 are more than 15; the ids that kubelet hands out are of the second card."""
    async with agent_harness(16130, 16130, starts=False) as world:
        old = put_bound_pod(world, "old", is_recorded=False, has_references=False, change=GPUSHARE)
        async with ScriptedPlugin(world.kubelet.plugins_folder, OLD_IDS) as plugin:
            await plugin.register()
            await world.kubelet.registered(MEMORY)
            await run_pod(world, old)
        await world.start_agent()
        assert "running pods hold 4" in await start_refused(world, put_bound_pod(world, "new", units=12))


async def test_pod_created_before_the_policy_is_refused_with_the_fix() -> None:
    async with agent_harness() as world:
        message = await start_refused(world, put_bound_pod(world, "p", has_references=False))
        assert "created before the admission policy; recreate it" in message
        assert count_refusals(world, "before_admission") == 1


async def test_pod_created_before_the_policy_is_refused_without_a_record_too() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p", has_references=False, is_recorded=False)
        assert "created before the admission policy; recreate it" in await start_refused(world, pod)


CLASSES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "none": ("", {}, True),
    "any other": ("nvidia", {}, True),
    "one that goes past": ("nvidia-legacy", {}, False),
    "one that is not listed": ("kata", {"allow": ["nvidia"]}, False),
    "one that is": ("nvidia", {"allow": ["nvidia"]}, True),
    "none where some are listed": ("", {"allow": ["nvidia"]}, True),
    "one whose hook is configured": ("nvidia-cdi", {"refuse": []}, True),
}


@pytest.mark.parametrize(("name", "settings", "may_start"), CLASSES.values(), ids=CLASSES)
async def test_runtime_class_that_bypasses_the_hook_is_refused(
    name: str, settings: dict[str, Any], *, may_start: bool
) -> None:
    async with agent_harness(runtime_classes=settings) as world:
        pod = put_bound_pod(world, "p", runtime_class=name)
        if may_start:
            await run_pod(world, pod)
            return
        assert f"runtime class {name} may bypass" in await start_refused(world, pod)
        assert count_refusals(world, "runtime_class") == 1


STATIC: dict[str, Mapping[str, Any]] = {
    "its mirror says so": {"change": {"kubernetes.io/config.mirror": "abc"}},
    "its owner is the node": {"owner": {"kind": "Node", "name": "gpu-0", "controller": True, "apiVersion": "v1"}},
}


@pytest.mark.parametrize("fields", STATIC.values(), ids=STATIC)
async def test_a_static_pod_is_refused(fields: Mapping[str, Any]) -> None:
    async with agent_harness() as world:
        message = await start_refused(world, put_bound_pod(world, "p", **fields))
        assert "a static pod is not scheduled and gets no card; make it a DaemonSet or a bare pod" in message
        assert count_refusals(world, "static") == 1


async def test_a_pod_of_another_node_is_refused() -> None:
    async with agent_harness() as world:
        assert "bound to node b, but this is gpu-0" in await start_refused(world, put_bound_pod(world, "p", node="b"))


async def test_a_pod_that_the_api_server_does_not_have_is_refused() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p")
        world.api.delete("pods", "p", grace_seconds=0)
        assert await world.kubelet.admit(pod)
        outcome = await world.kubelet.try_start(pod, "main")
        assert "the API server has no pod default/p" in str(outcome)
        assert count_refusals(world, "unknown_pod") == 1


async def test_a_pod_without_a_record_is_refused() -> None:
    """Another scheduler bound it, or it named its node itself."""
    async with agent_harness() as world:
        assert "has no record of its cards" in await start_refused(world, put_bound_pod(world, "p", is_recorded=False))
        assert count_refusals(world, "no_record") == 1


def an_allocation(
    *,
    pod: int = 4,
    container: int = 4,
    mib: int | None = 4301,
    uuid: str = "GPU-0",
    init_mib: int = 4301,
    of: int = 15,
) -> str:
    """The text that a pod of 4 units on the first of two cards has, with what a forger would change."""
    own, init = ({"uuid": uuid, "units": container, "mib": each} for each in (mib, init_mib))
    cards = [{"uuid": uuid, "index": 0, "units": pod, "of": of, "whole": False}]
    return json.dumps({"v": 1, "cards": cards, "containers": {"main": [own], "prepare": [init]}})


FORGED: dict[str, tuple[Mapping[str, str | None], str, str]] = {
    "fewer units for the pod than asked": ({ALLOCATION: an_allocation(pod=1)}, "record", "not what they request"),
    "fewer for the container": ({ALLOCATION: an_allocation(container=1)}, "record", "not what they request"),
    "more units than asked": (
        {ALLOCATION: an_allocation(pod=8, container=8, mib=8602), LIMIT: "8602"},
        "record",
        "gives {'GPU-0': 8} to the pod and {'GPU-0': 8} to this container, which is not what they request",
    ),
    "more of the card than it has units": (
        {ALLOCATION: an_allocation(of=4, mib=16130), LIMIT: "16130"},
        "record",
        "it was bound when card GPU-0 had 4 units, which has 15 now",
    ),
    "another card visible": ({VISIBLE: "GPU-1"}, "record", f"{VISIBLE} says 'GPU-1', the allocation 'GPU-0'"),
    "all cards visible": ({VISIBLE: "all"}, "record", f"{VISIBLE} says 'all'"),
    "two cards visible": ({VISIBLE: "GPU-0,GPU-1"}, "record", f"{VISIBLE} says 'GPU-0,GPU-1'"),
    "nothing visible": ({VISIBLE: None}, "record", f"{VISIBLE} is missing"),
    "a card whose name hides a kind": (
        {VISIBLE: "GPU-k8s.device-plugin.nvidia.com/gpu=0"},
        "record",
        f"{VISIBLE} says",
    ),
    "a limit above the share": (
        {ALLOCATION: an_allocation(mib=16130), LIMIT: "16130"},
        "limit",
        "its limit on card GPU-0 is missing or above the 4301 MiB",
    ),
    "a limit in the environment alone": ({LIMIT: "16130"}, "record", f"{LIMIT} says '16130', the allocation '4301'"),
    "no limit in the environment": ({LIMIT: None}, "record", f"{LIMIT} is missing"),
    "no limit at all": (
        {ALLOCATION: an_allocation(mib=None), LIMIT: None},
        "limit",
        "is missing or above the 4301 MiB",
    ),
    "a card that is not here": (
        {ALLOCATION: an_allocation(uuid="GPU-9"), VISIBLE: "GPU-9"},
        "unknown_card",
        "card GPU-9 is no longer on this node",
    ),
    "a card without a uuid": (
        {ALLOCATION: an_allocation().replace('"cards": [{"uuid": "GPU-0", ', '"cards": [{')},
        "unknown_card",
        "card without a uuid is no longer on this node",
    ),
    "no container": (
        {ALLOCATION: '{"v":1,"cards":[{"uuid":"GPU-0","index":0,"units":4}],"containers":{}}'},
        "record",
        "containers.main is missing",
    ),
    "no JSON": ({ALLOCATION: "{"}, "record", f'annotation "{ALLOCATION}": not JSON'),
    "no allocation beside gpushare's": ({ALLOCATION: None}, "record", f"{ALLOCATION} is missing"),
}


@pytest.mark.parametrize(("change", "reason", "text"), FORGED.values(), ids=FORGED)
async def test_forged_record_is_refused_with_the_reason(
    change: Mapping[str, str | None], reason: str, text: str
) -> None:
    async with agent_harness(16130, 16130) as world:
        message = await start_refused(world, put_bound_pod(world, "p", change=change))
        assert text in message
        assert count_refusals(world, reason) == 1
        assert not fence_of(world).count_held_units()


async def test_record_whose_containers_have_other_cards_than_the_pod_is_refused() -> None:
    """The pod would hold 2 units on each of two cards, and its container would use 4 on one of them."""
    cards = [{"uuid": "GPU-0", "index": 0, "units": 2}, {"uuid": "GPU-1", "index": 1, "units": 2}]
    own = [{"uuid": "GPU-0", "units": 4, "mib": 4301}]
    forged = json.dumps({"v": 1, "cards": cards, "containers": {"main": own}})
    async with agent_harness(16130, 16130) as world:
        assert "not what they request" in await start_refused(
            world, put_bound_pod(world, "p", change={ALLOCATION: forged})
        )


INIT_FORGED: dict[str, tuple[Mapping[str, str], str]] = {
    "another card": (
        {"visible-devices.vrampack.dev/prepare": "GPU-1"},
        "visible-devices.vrampack.dev/prepare says 'GPU-1', the allocation 'GPU-0'",
    ),
    "the whole card": (
        {ALLOCATION: an_allocation(init_mib=16130), "limit-mib.vrampack.dev/prepare": "16130"},
        "its limit on card GPU-0 is missing or above the 4301 MiB",
    ),
}


@pytest.mark.parametrize(("change", "text"), INIT_FORGED.values(), ids=INIT_FORGED)
async def test_a_forged_init_container_keeps_its_pod_from_starting(change: Mapping[str, str], text: str) -> None:
    """It has the ids of the main container, and kubelet's device allocations name that one."""
    async with agent_harness(16130, 16130) as world:
        pod = put_bound_pod(world, "p", init={"prepare": 4}, change=change)
        assert text in await start_refused(world, pod, "prepare")
