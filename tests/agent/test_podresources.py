"""kubelet's own device allocations: when they are read, for which container, and what happens if kubelet is slow, busy or gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from tests.agent.agent_harness import agent_harness
from tests.agent.pod_lifecycle import count_refusals, put_bound_pod
from tests.fakes.kubelet.pods import kubelet_pod
from tests.fakes.kubelet.rig import KubeletRig, kubelet_rig
from tests.fakes.kubelet.scripted_plugin import MEMORY
from vrampack.agent.kubelet import podresources
from vrampack.agent.kubelet.errors import KubeletError
from vrampack.agent.kubelet.podresources import PodResourcesClient

BUSY = grpc.StatusCode.RESOURCE_EXHAUSTED


@asynccontextmanager
async def open_pod_resources() -> AsyncIterator[tuple[KubeletRig, PodResourcesClient]]:
    """A client of a kubelet with one pod, `p`."""
    async with kubelet_rig() as rig:
        await rig.kubelet.admit(kubelet_pod("p"))
        yield rig, PodResourcesClient(rig.kubelet.pod_resources_socket, rig.kubelet.checkpoint, resource=MEMORY)


async def test_device_ids_are_read_by_container() -> None:
    async with open_pod_resources() as (rig, client):
        (held,) = await client.list_allocations()
        assert (held.namespace, held.pod_name, held.container) == ("default", "p", "main")
        assert held.device_ids == rig.kubelet.device_ids(rig.kubelet.pods["uid-p"], "main")


async def test_list_is_retried_while_kubelet_is_busy() -> None:
    """Kubelet answers a hundred calls a second."""
    async with open_pod_resources() as (rig, client):
        rig.kubelet.doors.list_pods.refuse("rejected by rate limit", code=BUSY, times=3)
        assert len(await client.list_allocations()) == 1


async def test_any_other_refusal_is_an_error_with_its_text() -> None:
    async with open_pod_resources() as (rig, client):
        rig.kubelet.doors.list_pods.refuse("not today")
        with pytest.raises(KubeletError, match="pod-resources: UNKNOWN: not today"):
            await client.list_allocations()


async def test_callers_before_a_list_begins_share_it() -> None:
    async with open_pod_resources() as (rig, client):
        rig.kubelet.doors.list_pods.hold()
        first = asyncio.create_task(client.list_allocations())
        await rig.kubelet.doors.list_pods.reached()
        others = [asyncio.create_task(client.list_allocations()) for _ in range(20)]
        await asyncio.sleep(0)
        calls = count_lists(client)
        rig.kubelet.doors.list_pods.release()
        await asyncio.gather(first, *others)
        assert calls == ["list"]
        assert all(other.result() is others[0].result() for other in others)


def count_lists(client: PodResourcesClient) -> list[str]:
    """Lists that begin from now on."""
    calls, real = [], client._list

    async def counted() -> tuple[podresources.DeviceAllocation, ...]:
        calls.append("list")
        return await real()

    client._list = counted  # type: ignore[method-assign] # it counts, for one test
    return calls


async def test_a_caller_during_a_list_gets_a_later_one() -> None:
    """What was allocated after that list began may not be in it."""
    async with open_pod_resources() as (rig, client):
        rig.kubelet.doors.list_pods.hold()
        first = asyncio.create_task(client.list_allocations())
        await rig.kubelet.doors.list_pods.reached()
        later = asyncio.create_task(client.list_allocations())
        await asyncio.sleep(0)
        rig.kubelet.doors.list_pods.release()
        before = await first
        assert {held.pod_name for held in before} == {"p"}
        assert await later is not before


async def test_a_cancelled_caller_leaves_the_list_to_the_others() -> None:
    async with open_pod_resources() as (rig, client):
        rig.kubelet.doors.list_pods.hold()
        one, other = asyncio.create_task(client.list_allocations()), asyncio.create_task(client.list_allocations())
        await rig.kubelet.doors.list_pods.reached()
        one.cancel()
        rig.kubelet.doors.list_pods.release()
        assert len(await other) == 1


async def test_unreachable_kubelet_raises_an_error(tmp_path: Path) -> None:
    client = PodResourcesClient(tmp_path / "kubelet.sock", tmp_path / "checkpoint", resource=MEMORY)
    with pytest.raises(KubeletError, match="pod-resources: UNAVAILABLE"):
        await client.list_allocations()


async def test_start_is_refused_with_a_reason_when_kubelet_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podresources, "CALL_SECONDS", 0.2)
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p")
        assert await world.kubelet.admit(pod)
        world.kubelet.doors.list_pods.hold()
        outcome = await world.kubelet.try_start(pod, "main")
        assert "kubelet does not say whose devices these are: pod-resources: DEADLINE_EXCEEDED" in str(outcome)
        assert count_refusals(world, "unknown_ids") == 1
        world.kubelet.doors.list_pods.release()
        await world.kubelet.start(pod, "main")


async def test_start_is_refused_when_kubelet_is_busy_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podresources, "CALL_SECONDS", 0.2)
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p")
        assert await world.kubelet.admit(pod)
        world.kubelet.doors.list_pods.refuse("rejected by rate limit", code=BUSY, times=1000)
        assert "RESOURCE_EXHAUSTED" in str(await world.kubelet.try_start(pod, "main"))


async def test_containers_that_start_together_each_get_the_recorded_card() -> None:
    async with agent_harness(16130, 16130) as world:
        pods = [put_bound_pod(world, f"p{at}", cards=[at % 2], units=3) for at in range(10)]
        for pod in pods:
            assert await world.kubelet.admit(pod)
        world.kubelet.doors.list_pods.refuse("rejected by rate limit", code=BUSY, times=2)
        started = await asyncio.gather(*(world.kubelet.start(pod, "main") for pod in pods))
        for pod, each in zip(pods, started, strict=True):
            assert each.env["NVIDIA_VISIBLE_DEVICES"] == pod.annotations["visible-devices.vrampack.dev/main"]


async def test_ids_without_a_container_are_refused() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p")
        assert await world.kubelet.admit(pod)
        del world.kubelet.pods[pod.uid]
        world.kubelet.life.books.write(world.kubelet.checkpoint)
        world.kubelet.pods["uid-other"] = kubelet_pod("other", units=0)
        endpoint = world.kubelet.life.registrar.endpoints[MEMORY]
        with pytest.raises(Exception, match="kubelet's own device allocations have no container with these 4 devices"):
            await endpoint.pre_start([f"GPU-0::{at}" for at in range(4)], 30)


CHECKPOINTS = {
    "no file": (None, ()),
    "nothing allocated": ({"Data": {"PodDeviceEntries": None, "RegisteredDevices": {}}, "Checksum": 1}, ()),
    "another resource": (
        {"Data": {"PodDeviceEntries": [
            {"PodUID": "u", "ContainerName": "c", "ResourceName": "x/y", "DeviceIDs": {"-1": ["a"]}, "AllocResp": ""}
        ]}},
        (),
    ),
    "ids on two NUMA nodes": (
        {"Data": {"PodDeviceEntries": [
            {"PodUID": "u", "ContainerName": "c", "ResourceName": MEMORY, "DeviceIDs": {"0": ["a"], "1": ["b"]}}
        ]}},
        (podresources.CheckpointAllocation("u", "c", frozenset("ab")),),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "wanted"), CHECKPOINTS.values(), ids=CHECKPOINTS)
async def test_the_checkpoint_is_read(
    tmp_path: Path, body: object, wanted: tuple[podresources.CheckpointAllocation, ...]
) -> None:
    path = tmp_path / "checkpoint"
    if body is not None:
        path.write_text(json.dumps(body))
    assert await PodResourcesClient(tmp_path / "s", path, resource=MEMORY).read_checkpoint() == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"Data": 1}',
        *(f'{{"Data":{{"PodDeviceEntries":[{{"PodUID":{uid}}}]}}}}' for uid in ("1", '"\udcff"')),
    ],
)
async def test_malformed_checkpoint_raises_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(KubeletError, match=r"/checkpoint: "):
        await PodResourcesClient(tmp_path / "s", path, resource=MEMORY).read_checkpoint()
