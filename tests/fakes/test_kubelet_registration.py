"""Registration and lists: how kubelet's own socket behaves towards a device plugin."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import grpc
import pytest

from tests.fakes.kubelet.endpoints import Timeouts
from tests.fakes.kubelet.pods import kubelet_pod
from tests.fakes.kubelet.rig import IDS, kubelet_rig
from tests.fakes.kubelet.scripted_plugin import MEMORY


async def test_kubelet_calls_back_while_register_is_pending() -> None:
    async with kubelet_rig() as rig, rig.plugin_named("next.sock") as plugin:
        rig.kubelet.doors.register_answer.hold()
        pending = asyncio.create_task(plugin.register())
        await rig.kubelet.doors.register_answer.reached()
        assert "GetDevicePluginOptions" in plugin.entered
        await plugin.called("ListAndWatch")
        assert not pending.done()
        rig.kubelet.doors.register_answer.release()
        await pending


REFUSED = {
    "another version": ({"version": "v1alpha1"}, 'requested API version "v1alpha1" is not supported by kubelet'),
    "no domain in the name": ({"resource": "gpu-mem"}, 'the ResourceName "gpu-mem" is invalid'),
}


@pytest.mark.parametrize(("arguments", "text"), REFUSED.values(), ids=REFUSED)
async def test_a_bad_registration_is_refused(arguments: dict[str, str], text: str) -> None:
    async with kubelet_rig() as rig:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await rig.plugin.register(**arguments)  # type: ignore[arg-type]  # names of a table
        assert refused.value.code() is grpc.StatusCode.UNKNOWN
        assert text in (refused.value.details() or "")


async def test_a_test_can_hold_and_refuse_registrations() -> None:
    async with kubelet_rig() as rig:
        rig.kubelet.doors.register.hold()
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await rig.plugin.register(timeout_seconds=0.1)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        rig.kubelet.doors.register.release()
        rig.kubelet.doors.register.refuse("not today")
        with pytest.raises(grpc.aio.AioRpcError, match="not today"):
            await rig.plugin.register()
        await rig.plugin.register()


async def test_health_and_capacity_follow_the_list() -> None:
    """An unhealthy device counts in capacity but not in allocatable."""
    async with kubelet_rig() as rig:
        assert (rig.kubelet.capacity(MEMORY), rig.kubelet.allocatable(MEMORY)) == (16, 16)
        rig.plugin.set_health(IDS[0], "Unhealthy")
        await rig.kubelet.until(lambda: rig.kubelet.allocatable(MEMORY) == 15)
        assert rig.kubelet.capacity(MEMORY) == 16
        assert IDS[0] not in rig.kubelet.healthy_ids(MEMORY)


async def test_all_devices_are_unhealthy_once_the_stream_ends() -> None:
    async with kubelet_rig() as rig:
        await rig.kubelet.cut_connections(MEMORY)
        assert (rig.kubelet.capacity(MEMORY), rig.kubelet.allocatable(MEMORY)) == (16, 0)
        await rig.plugin.register()
        await rig.kubelet.registered(MEMORY, times=2)
        rig.kubelet.drop_stopped()
        assert rig.kubelet.capacity(MEMORY) == 16


async def test_a_list_over_four_mebibytes_ends_the_stream() -> None:
    async with kubelet_rig() as rig:
        rig.plugin.devices = {f"GPU-{'x' * 45}::{number}": "Healthy" for number in range(70_000)}  # 60 bytes each
        rig.plugin.set_health(IDS[0], "Healthy")
        await rig.kubelet.until(lambda: rig.kubelet.allocatable(MEMORY) == 0)


async def test_an_older_stream_still_updates_the_same_resource() -> None:
    """The newest registration gets the calls, but both send lists, and the last one counts."""
    async with kubelet_rig() as rig, rig.plugin_named("second.sock", ["other"]) as second:
        await second.register()
        await rig.kubelet.until(lambda: rig.kubelet.healthy_ids(MEMORY) == {"other"})
        rig.plugin.set_health(IDS[0], "Unhealthy")
        await rig.kubelet.until(lambda: rig.kubelet.allocatable(MEMORY) == 15)


async def test_the_end_of_an_older_stream_takes_the_newest_plugin_down() -> None:
    """A plugin that stops its old server after registering the new one loses both; it must notice and register again."""
    async with kubelet_rig() as rig:
        kubelet, second = rig.kubelet, rig.plugin_named("second.sock")
        async with second:
            await second.register()
            await second.called("ListAndWatch")
            await rig.plugin.__aexit__()
            await kubelet.until(lambda: kubelet.allocatable(MEMORY) == 0)
            await second.dropped()
            await second.register()
            await kubelet.registered(MEMORY, times=3)


async def test_a_failed_registration_hides_the_end_of_the_older_stream() -> None:
    """The devices of the plugin that is gone stay healthy, and new pods fail."""
    async with kubelet_rig(timeouts=Timeouts(dial_seconds=0.1)) as rig:
        with pytest.raises(grpc.aio.AioRpcError):  # kubelet's own answer, so it has dropped the old one by then
            await rig.plugin_named("nobody.sock").register()
        await rig.plugin.__aexit__()
        pod = kubelet_pod()
        assert not await rig.kubelet.admit(pod)
        assert "code = Unavailable" in pod.message
        assert rig.kubelet.allocatable(MEMORY) == 16


async def test_dialling_a_plugin_that_does_not_serve_times_out() -> None:
    async with kubelet_rig(timeouts=Timeouts(dial_seconds=0.1)) as rig:
        with pytest.raises(grpc.aio.AioRpcError, match="failed to dial device plugin: context deadline exceeded"):
            await rig.plugin_named("nobody.sock").register()


async def test_fifty_registrations_leave_nothing_behind() -> None:
    async with kubelet_rig() as rig:

        async def cycle(number: int) -> None:
            await rig.kubelet.restart()
            async with rig.plugin_named(f"p{number}.sock") as plugin:
                await plugin.register()
                await rig.kubelet.registered(MEMORY, times=number)

        await cycle(2)
        before, threads = _open_files(), threading.active_count()
        for number in range(3, 52):
            await cycle(number)
        assert _open_files() <= before + 2
        assert threading.active_count() <= threads + 1
        sockets = [path.name for path in rig.kubelet.plugins_folder.iterdir() if path.is_socket()]
        assert sockets == ["kubelet.sock"]


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
