"""The start of a container: PreStartContainer every time, and the environment that results."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from tests.fakes.kubelet.endpoints import Timeouts
from tests.fakes.kubelet.pods import kubelet_pod
from tests.fakes.kubelet.rig import kubelet_rig
from tests.fakes.kubelet.scripted_plugin import MEMORY
from tests.fakes.kubelet.starting import StartRefusedError, WaitingContainer

VISIBLE = {"visible-devices.vrampack.dev/main": "GPU-1"}


async def test_the_pods_environment_beats_the_plugins_and_the_images() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod(annotations=VISIBLE)
        await rig.kubelet.admit(pod)
        image = {"NVIDIA_VISIBLE_DEVICES": "all", "FROM_PLUGIN": "image", "PATH": "/bin"}
        started = await rig.kubelet.start(pod, "main", image_env=image)
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
        assert started.env["FROM_PLUGIN"] == "yes"
        assert started.env["PATH"] == "/bin"
        assert started.env["ALIYUN_COM_GPU_MEM_CONTAINER"] == "4"
        assert started.device_ids == rig.kubelet.device_ids(pod, "main")


async def test_without_references_the_plugins_environment_applies() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod(annotations=VISIBLE, has_references=False)
        await rig.kubelet.admit(pod)
        assert (await rig.kubelet.start(pod, "main")).env["NVIDIA_VISIBLE_DEVICES"] == "void"


async def test_a_missing_annotation_is_an_empty_variable() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod()
        await rig.kubelet.admit(pod)
        assert (await rig.kubelet.start(pod, "main")).env["NVIDIA_VISIBLE_DEVICES"] == ""


async def test_a_variable_may_refer_to_earlier_variables() -> None:
    async with kubelet_rig() as rig:
        values = {"UNITS": "$(ALIYUN_COM_GPU_MEM_CONTAINER) of $(UNKNOWN), $$(PATH)", "EMPTY": ""}
        pod = kubelet_pod(env=[{"name": name, "value": value} for name, value in values.items()])
        await rig.kubelet.admit(pod)
        env = (await rig.kubelet.start(pod, "main")).env
        assert (env["UNITS"], env["EMPTY"]) == ("4 of $(UNKNOWN), $(PATH)", "")


async def test_every_start_calls_the_fence_and_rereads_the_annotations() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod(annotations=VISIBLE)
        await rig.kubelet.admit(pod)
        await rig.kubelet.start(pod, "main")
        rig.kubelet.exit(pod, "main")
        pod.annotations["visible-devices.vrampack.dev/main"] = "GPU-0"
        again = await rig.kubelet.start(pod, "main")
        assert again.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        assert len(rig.kubelet.calls_of("PreStartContainer")) == 2
        assert len(rig.kubelet.calls_of("Allocate")) == 1
        assert pod.manifest()["status"]["containerStatuses"][0]["restartCount"] == 1


async def test_the_fence_is_not_called_without_the_option() -> None:
    async with kubelet_rig() as rig:
        rig.plugin.options.pre_start_required = False
        await rig.plugin.register()
        await rig.kubelet.registered(MEMORY, times=2)
        pod = kubelet_pod()
        await rig.kubelet.admit(pod)
        await rig.kubelet.start(pod, "main")
        assert rig.kubelet.calls_of("PreStartContainer") == []


async def test_a_refused_start_waits_and_may_be_tried_again() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod()
        await rig.kubelet.admit(pod)
        rig.plugin.refusals["PreStartContainer"] = "card 0 is full"
        words = "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = card 0 is full"
        assert await rig.kubelet.try_start(pod, "main") == WaitingContainer("CreateContainerConfigError", words)
        assert pod.manifest()["status"]["containerStatuses"][0]["state"]["waiting"]["message"] == words
        with pytest.raises(StartRefusedError, match="card 0 is full"):
            await rig.kubelet.start(pod, "main")
        rig.plugin.refusals.clear()
        await rig.kubelet.start(pod, "main")
        assert pod.phase == "Running"


async def test_a_fence_that_hangs_is_given_up() -> None:
    async with kubelet_rig(timeouts=Timeouts(pre_start_seconds=0.1)) as rig:
        pod = kubelet_pod()
        await rig.kubelet.admit(pod)
        rig.plugin.held.add("PreStartContainer")
        with pytest.raises(StartRefusedError, match="code = DeadlineExceeded desc = context deadline exceeded"):
            await rig.kubelet.start(pod, "main")


async def test_pod_resources_lists_the_container_during_the_fence_call() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod()
        await rig.kubelet.admit(pod)
        rig.plugin.held.add("PreStartContainer")
        starting = asyncio.create_task(rig.kubelet.start(pod, "main"))
        await rig.plugin.called("PreStartContainer")
        assert await rig.listed() == {"p": {"main": rig.kubelet.device_ids(pod, "main")}}
        rig.plugin.release()
        await starting


async def test_pod_resources_shows_the_pod_but_no_ids_during_allocate() -> None:
    async with kubelet_rig() as rig:
        rig.plugin.held.add("Allocate")
        admitting = asyncio.create_task(rig.kubelet.admit(kubelet_pod()))
        await rig.plugin.called("Allocate")
        assert await rig.listed() == {"p": {"main": set()}}
        rig.plugin.release()
        assert await admitting


async def test_a_test_can_delay_and_refuse_pod_resources_calls() -> None:
    async with kubelet_rig() as rig:
        door = rig.kubelet.doors.list_pods
        door.hold()
        listing = asyncio.create_task(rig.listed())
        await door.reached()
        assert not listing.done()
        door.release()
        assert await listing == {}
        door.refuse("rejected by rate limit", code=grpc.StatusCode.RESOURCE_EXHAUSTED)
        with pytest.raises(grpc.aio.AioRpcError, match="rate limit"):
            await rig.listed()


async def test_containers_of_a_stopped_plugin_do_not_start() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod()
        await rig.kubelet.admit(pod)
        await rig.kubelet.cut_connections(MEMORY)
        with pytest.raises(StartRefusedError, match=f"endpoint {MEMORY} has been stopped"):
            await rig.kubelet.start(pod, "main")
