"""kubelet killed, restarted, rebooted: what it remembers, and what happens to pods before the plugin registers again."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.kubelet.errors import KilledError
from tests.fakes.kubelet.pods import kubelet_pod
from tests.fakes.kubelet.rig import kubelet_rig
from tests.fakes.kubelet.scripted_plugin import MEMORY


async def test_a_restart_wipes_plugin_sockets_and_makes_a_new_one_of_its_own() -> None:
    async with kubelet_rig() as rig:
        before = rig.kubelet.registration_socket.stat().st_ino
        await rig.kubelet.kill()
        assert rig.kubelet.registration_socket.is_socket()
        await rig.kubelet.is_up()
        assert rig.kubelet.registration_socket.stat().st_ino != before
        assert not (rig.kubelet.plugins_folder / rig.plugin.name).exists()
        assert rig.kubelet.capacity(MEMORY) == 0


async def test_running_pods_survive_a_restart_and_keep_their_ids() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod()
        await rig.kubelet.admit(pod)
        await rig.kubelet.start(pod, "main")
        ids = rig.kubelet.device_ids(pod, "main")
        await rig.kubelet.restart()
        assert pod.phase == "Running"
        assert await rig.listed() == {"p": {"main": ids}}


async def test_pods_admitted_before_the_plugin_registers_again_fail() -> None:
    async with kubelet_rig() as rig:
        await rig.kubelet.restart()
        pod = kubelet_pod()
        assert not await rig.kubelet.admit(pod)
        assert f"no healthy devices present; cannot allocate unhealthy devices {MEMORY}" in pod.message


UNSTARTED = {
    "not started yet": ({}, False),
    "running, after an init container with devices": ({"init": 4}, True),
}


@pytest.mark.parametrize(("init", "starts"), UNSTARTED.values(), ids=UNSTARTED)
async def test_a_restart_fails_pods_with_a_container_that_holds_devices_and_does_not_run(
    init: dict[str, int], *, starts: bool
) -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod(init=init)
        await rig.kubelet.admit(pod)
        if starts:
            await rig.kubelet.start(pod, "init")
            rig.kubelet.exit(pod, "init")
            await rig.kubelet.start(pod, "main")
        await rig.kubelet.restart()
        assert (pod.phase, pod.reason) == ("Failed", "UnexpectedAdmissionError")


async def test_until_the_plugin_registers_again_containers_restart_without_fence() -> None:
    """The options are not in the checkpoint, so kubelet does not know that it must call PreStartContainer."""
    async with kubelet_rig() as rig:
        pod = kubelet_pod()
        await rig.kubelet.admit(pod)
        await rig.kubelet.start(pod, "main")
        await rig.kubelet.restart()
        rig.kubelet.exit(pod, "main")
        started = await rig.kubelet.start(pod, "main")
        assert started.env["FROM_PLUGIN"] == "yes"
        assert len(rig.kubelet.calls_of("PreStartContainer")) == 1


async def test_after_a_reboot_prestart_is_called_again_but_allocate_is_not() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod()
        await rig.kubelet.admit(pod)
        await rig.kubelet.start(pod, "main")
        ids = rig.kubelet.device_ids(pod, "main")
        await rig.kubelet.reboot()
        async with rig.plugin_named("after.sock") as plugin:
            await plugin.register()
            await rig.kubelet.registered(MEMORY, times=2)
            await rig.kubelet.readmit()
            started = await rig.kubelet.start(pod, "main")
            assert plugin.entered[-1:] == ["PreStartContainer"]
        assert started.device_ids == ids
        assert started.env["FROM_PLUGIN"] == "yes"
        assert len(rig.kubelet.calls_of("Allocate")) == 1


AFTER_REBOOT = {
    "the plugin is late": (None, "no healthy devices present"),
    "its ids are other ones": (["new"], "previously allocated devices are no longer healthy"),
}


@pytest.mark.parametrize(("ids", "words"), AFTER_REBOOT.values(), ids=AFTER_REBOOT)
async def test_a_reboot_fails_pods_whose_devices_are_not_there(ids: list[str] | None, words: str) -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod()
        await rig.kubelet.admit(pod)
        await rig.kubelet.reboot()
        async with rig.plugin_named("after.sock", ids or []) as plugin:
            if ids:
                await plugin.register()
                await rig.kubelet.registered(MEMORY, times=2)
            await rig.kubelet.readmit()
        assert words in pod.message


async def test_kubelet_killed_during_allocate_calls_it_again_after_restart() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod(units=16)
        rig.plugin.held.add("Allocate")
        admitting = asyncio.create_task(rig.kubelet.admit(pod))
        await rig.plugin.called("Allocate")
        await rig.kubelet.kill()
        with pytest.raises(KilledError):
            await admitting
        rig.plugin.release()
        await rig.kubelet.is_up()
        async with rig.plugin_named("after.sock") as plugin:
            await plugin.register()
            await rig.kubelet.registered(MEMORY, times=2)
            await rig.kubelet.readmit()
            assert pod.phase == "Pending"
            assert "Allocate" in plugin.entered


async def test_without_a_plugin_for_five_minutes_the_resource_leaves_the_node() -> None:
    """A new pod is then admitted as if it requested nothing; an old one does not start."""
    async with kubelet_rig() as rig:
        old = kubelet_pod("old")
        await rig.kubelet.admit(old)
        await rig.kubelet.cut_connections(MEMORY)
        rig.kubelet.drop_stopped()
        assert rig.kubelet.capacity(MEMORY) == 0
        outcome = await rig.kubelet.try_start(old, "main")
        assert f"endpoint not found in cache for a registered resource: {MEMORY}" in str(outcome)
        rig.kubelet.remove(old)
        assert await rig.listed() == {}
        new = kubelet_pod("new")
        assert await rig.kubelet.admit(new)
        assert rig.kubelet.device_ids(new, "main") == set()
