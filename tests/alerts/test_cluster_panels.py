"""Panels that the extender fills: each value is counted again from the API's objects, and is equal within one scrape."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp

from dashboards.definitions import GPU_NODE, VRAMPACK
from tests.alerts.panel_values import Between, PanelValues, expect_rate
from tests.alerts.recount import recount_cluster
from tests.alerts.scene import T4, AlertScene, Programs, filter_pod, run_scene
from vrampack.cards.well_known import RETRY_ANNOTATION
from vrampack.cli.demo.objects import build_pod_object

REASONS = ("fits", "fragmented", "full", "never", "other")
NODES = {"gpu-0": (T4, T4), "gpu-1": (T4,)}
"""Three cards of 15 units."""
EXTENDER = (("pod", "vrampack-scheduler-0"),)
FILTER = (("verb", "filter"),)
CALLS = 20
KNOWN = 'vrampack_node_memory_capacity_bytes{node="gpu-0"}'
CALLED = 'vrampack_extender_request_duration_seconds_count{verb="filter"}'
FIRST_BUCKET_SECONDS = 0.0005
"""Of the histogram, whose buckets double."""


async def test_panels_show_the_memory_of_the_cluster_and_its_nodes(tmp_path: Path, programs: Programs) -> None:
    async with run_scene(tmp_path, programs, NODES) as scene:
        await fill_cluster(scene)
        counted = await asyncio.to_thread(recount_cluster, scene.api.url)
        capacity, held = counted.sum_capacity_bytes(), counted.sum_held_bytes()
        assert sum(held.values()) > 0
        panels = PanelValues(GPU_NODE, scene.monitoring)
        await panels.wait_until_equal("Cluster memory", {(): sum(capacity.values())})
        await panels.wait_until_equal("Given away", {(): sum(held.values()) / sum(capacity.values())})
        await panels.wait_until_equal(
            "Given away by node", {(("node", name),): held[name] / capacity[name] for name in capacity}
        )
        scattered = counted.sum_scattered_bytes()
        await panels.wait_until_equal("Free in pieces", {(("node", name),): scattered[name] for name in scattered})
        await panels.record_what_lasts()


async def test_panels_show_waiting_pods_and_binds(tmp_path: Path, programs: Programs) -> None:
    async with run_scene(tmp_path, programs, NODES) as scene:
        await fill_cluster(scene)
        counted = await asyncio.to_thread(recount_cluster, scene.api.url)
        waiting = counted.count_waiting()
        assert waiting == {"fragmented": 1, "full": 1, "never": 1}
        panels = PanelValues(VRAMPACK, scene.monitoring)
        await panels.wait_until_equal("Pods that wait", {(("reason", name),): waiting.get(name, 0) for name in REASONS})
        await panels.wait_until_equal("Fresh ledgers", {EXTENDER: 1})
        await panels.wait_until_equal("Binds", {(("result", "ok"),): expect_rate(len(counted.bound))})
        await panels.record_what_lasts()


async def test_panels_show_an_activated_pod(tmp_path: Path, programs: Programs) -> None:
    """The test is its scheduler: it calls filter, and no more until the pod is woken."""
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene:
        scene.api.create(build_pod_object("holder", units=15))
        await scene.wait_until_bound("holder")
        create_pod(scene, "waiter")
        assert await filter_pod(scene, "waiter") == []
        scene.api.delete("pods", "holder")
        await scene.wait_until(lambda: is_woken(scene), "the pod is woken")
        assert await filter_pod(scene, "waiter") == ["gpu-0"]
        await bind_pod(scene, "waiter", "gpu-0")
        woken = sum(RETRY_ANNOTATION in pod["metadata"].get("annotations", {}) for pod in scene.api.list_pods())
        expected = {(("result", result),): 0.0 for result in ("refused", "expired", "gone", "failed")}
        panels = PanelValues(VRAMPACK, scene.monitoring)
        await panels.wait_until_equal("Activations", expected | {(("result", "bound"),): expect_rate(woken)})
        await panels.record_what_lasts()


async def test_panels_show_call_durations_as_timed_by_the_test(tmp_path: Path, programs: Programs) -> None:
    """No scheduler calls: of 20 calls the 99th percentile is in the slowest one's bucket, whatever the others were."""
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene:
        await scene.monitoring.wait_until_sampled(KNOWN)
        create_pod(scene, "asked")
        await time_filter(scene, "asked")
        await scene.monitoring.wait_until_sampled(f"{CALLED} == 1")
        slowest = max([await time_filter(scene, "asked") for _ in range(CALLS)])
        panels = PanelValues(VRAMPACK, scene.monitoring)
        await scene.monitoring.wait_until_sampled(f"{CALLED} == {CALLS + 1}")
        await panels.wait_until_equal("Verbs, 99th percentile", {FILTER: Between(0, find_bucket(slowest))})
        await panels.record_what_lasts()


async def test_panels_show_an_unconfirmed_placement(tmp_path: Path, programs: Programs) -> None:
    """The API server has a Binding, and falls silent before the extender learns of it."""
    async with run_scene(tmp_path, programs, {"gpu-0": (T4,)}) as scene:
        await scene.monitoring.wait_until_sampled(KNOWN)
        create_pod(scene, "unseen")
        assert await filter_pod(scene, "unseen") == ["gpu-0"]
        panels = PanelValues(VRAMPACK, scene.monitoring)
        await panels.wait_until_equal("Places not seen yet", {EXTENDER: 0})
        scene.proxy.freeze_watches()
        await bind_pod(scene, "unseen", "gpu-0")
        silence = scene.proxy.when("*", "").hang()  # else it asks for the pod after a while
        counted = await asyncio.to_thread(recount_cluster, scene.api.url)
        await panels.wait_until_equal("Places not seen yet", {EXTENDER: len(counted.bound)})
        await panels.record_what_lasts()
        silence.release()
        scene.proxy.thaw_watches()


def create_pod(scene: AlertScene, name: str) -> None:
    """One that the scheduler of the cluster leaves alone."""
    pod = build_pod_object(name, units=10)
    pod["spec"]["schedulerName"] = "another"
    scene.api.create(pod)


async def time_filter(scene: AlertScene, name: str) -> float:
    began = time.monotonic()
    assert await filter_pod(scene, name) == ["gpu-0"]
    return time.monotonic() - began


def find_bucket(seconds: float) -> float:
    """The upper bound of the bucket that counts it."""
    bound = FIRST_BUCKET_SECONDS
    while bound < seconds:
        bound *= 2
    return bound


def is_woken(scene: AlertScene) -> bool:
    return RETRY_ANNOTATION in scene.api.get("pods", "waiter")["metadata"].get("annotations", {})


async def fill_cluster(scene: AlertScene) -> None:
    """Three pods hold a card each; of three more, one waits for scattered memory, one for more than any node has free, one for ever."""
    for name, units in (("a", 8), ("b", 8), ("c", 11)):
        scene.api.create(build_pod_object(name, units=units))
    await scene.wait_until_bound("a", "b", "c")
    for name, units in (("pieces", 10), ("full", 15), ("never", 16)):
        scene.api.create(build_pod_object(name, units=units))


async def bind_pod(scene: AlertScene, name: str, node: str) -> None:
    metadata = scene.api.get("pods", name)["metadata"]
    body = {"PodName": name, "PodNamespace": "default", "PodUID": metadata["uid"], "Node": node}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{scene.extender.url_prefix}/bind", json=body) as answer,
    ):
        assert not (await answer.json(content_type=None)).get("Error")
