"""Alerts about pods that wait, binds that fail, and pods that were evicted for nothing."""

from __future__ import annotations

from pathlib import Path

from extender.card_preemption.card_preemptor import LEASE_NAME
from tests.alerts.scene import T4, Programs, filter_pod, run_scene
from vrampack.cli.demo.objects import build_pod_object


async def test_a_pod_that_fits_no_single_card_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    """Two cards of 15 units, 8 used on each: 14 are free, 7 on a card, and 10 are asked."""
    async with run_scene(tmp_path, programs, {"gpu-0": (T4, T4)}) as scene:
        scene.api.create(build_pod_object("first", units=8))
        scene.api.create(build_pod_object("second", units=8))
        await scene.wait_until_bound("first", "second")
        scene.api.create(build_pod_object("large", units=10))
        alert = await scene.monitoring.wait_until_notified("VrampackPodsPendingByCard", "firing")
        assert alert["annotations"]["summary"].startswith("1 pods wait")
        scene.api.delete("pods", "second")
        await scene.wait_until_bound("large")
        await scene.monitoring.wait_until_notified("VrampackPodsPendingByCard", "resolved")
        assert scene.monitoring.receiver.names == {"VrampackPodsPendingByCard"}


async def test_a_pod_that_waits_beyond_the_flush_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    """A scheduler called filter once and never again; there is room by now, and the API server takes no activation."""
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene:
        scene.api.create(build_pod_object("holder", units=15))
        await scene.wait_until_bound("holder")
        waiter = build_pod_object("waiter", units=10)
        waiter["spec"]["schedulerName"] = "another"
        scene.api.create(waiter)
        assert await filter_pod(scene, "waiter") == []
        refusals = scene.proxy.when("PATCH", r"/pods/waiter/status").answer(500)
        scene.api.delete("pods", "holder")
        await scene.monitoring.wait_until_notified("VrampackPodWaitsBeyondFlush", "firing")
        refusals.stop()
        await scene.monitoring.wait_until_notified("VrampackPodWaitsBeyondFlush", "resolved")
        assert scene.monitoring.receiver.names == {"VrampackPodWaitsBeyondFlush"}


async def test_failing_binds_raise_an_alert(tmp_path: Path, programs: Programs) -> None:
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene:
        failures = scene.proxy.when("POST", r"/binding").answer(500)
        for name in ("first", "second", "third"):
            scene.api.create(build_pod_object(name, units=3))
        await scene.monitoring.wait_until_notified("VrampackBindsFailing", "firing")
        failures.stop()
        await scene.wait_until_bound("first", "second", "third")
        await scene.monitoring.wait_until_notified("VrampackBindsFailing", "resolved")
        assert scene.monitoring.receiver.names == {"VrampackBindsFailing"}


async def test_pods_that_are_evicted_in_vain_raise_an_alert(tmp_path: Path, programs: Programs) -> None:
    """The scheduler that called filter binds no pod any more. The proxy has the Lease, which the embedded API server does not know."""
    lease = {"kind": "Lease", "metadata": {"name": LEASE_NAME, "resourceVersion": "1"}, "spec": {}}
    by_card = "preemption: {by_card: act}\n"
    async with run_scene(tmp_path, programs, {"gpu-0": (T4, T4)}, configuration=by_card) as scene:
        for method in ("GET", "PATCH"):
            scene.proxy.when(method, f"/leases/{LEASE_NAME}$").answer(200, lease)
        for name in ("first", "second"):
            scene.api.create(build_pod_object(name, units=8))
        await scene.wait_until_bound("first", "second")
        urgent = build_pod_object("urgent", units=10)
        urgent["spec"] |= {"schedulerName": "another", "priority": 10}
        scene.api.create(urgent)
        assert await filter_pod(scene, "urgent") == []
        await scene.monitoring.wait_until_notified("VrampackEvictedInVain", "firing")
        await scene.monitoring.wait_until_notified("VrampackEvictedInVain", "resolved")
