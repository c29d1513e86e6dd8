"""The demo's scenario, step by step. Each step waits for the cluster's state, reads it back and prints it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from vrampack.cli.demo import objects
from vrampack.cli.demo.extender_process import POLL_SECONDS, is_answered_ok
from vrampack.cli.demo.objects import CardModel, DemoWorkload
from vrampack.cli.demo.report import (
    ClusterAccess,
    format_app_stage,
    format_empty_stage,
    format_freed_stage,
    format_full_stage,
    format_mixed_stage,
)
from vrampack.cli.demo.stages import DemoStage, find_unschedulable_message, read_explanation, read_stage
from vrampack.simulator.apiserver import ApiServer

STEP_SECONDS = 30
"""Each step takes a few milliseconds; the rest is for a busy machine."""
Pod = dict[str, Any]  # Any: one field of an API object, read where it is used


class ScenarioError(RuntimeError):
    """The cluster did not reach the state that a step waits for."""


class DemoScenario:
    """The demo's cluster, and the function that prints its text."""

    def __init__(self, api: ApiServer, access: ClusterAccess, print_text: Callable[[str], None]) -> None:
        self.api = api
        self.access = access
        self.print_text = print_text
        self._changed = asyncio.Event()
        api.store.subscribe(self._changed.set)

    async def wait_until(self, is_reached: Callable[[], bool], description: str) -> float:
        """Wait for a state of the cluster; returns the milliseconds it took. Raises `ScenarioError`."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(STEP_SECONDS):
                while not is_reached():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise ScenarioError(f"waited {STEP_SECONDS} s for this: {description}") from error
        return (time.perf_counter() - started) * 1000

    async def wait_until_decided(self, count: int) -> float:
        """Wait until `count` pods exist and each is placed or refused with a reason."""
        return await self.wait_until(
            lambda: len(pods := self.api.list_pods()) == count and all(map(_is_decided, pods)),
            f"{count} pods are placed or refused",
        )

    async def wait_until_placed(self, count: int) -> float:
        """Wait until `count` pods exist and each is placed."""
        return await self.wait_until(
            lambda: len(pods := self.api.list_pods()) == count and all(map(_is_placed, pods)),
            f"{count} pods are left, each with its place",
        )

    async def wait_until_known(self, node: str) -> None:
        """Wait until the extender has read the node: before that it refuses pods for which the node has room."""
        url = f"{self.access.extender_url}/inspect/{node}"
        try:
            async with asyncio.timeout(STEP_SECONDS), aiohttp.ClientSession() as session:
                while not await is_answered_ok(session, url):  # noqa: ASYNC110 - another process has no event to await here
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            raise ScenarioError(f"waited {STEP_SECONDS} s for the extender to know node {node}") from error

    async def read_stage(self, name: str, elapsed_ms: float = 0.0) -> DemoStage:
        return await read_stage(name, self.api.url, elapsed_ms=elapsed_ms)


async def run_first_part(
    scenario: DemoScenario, card: CardModel, app: DemoWorkload, *, stops_when_full: bool
) -> list[DemoStage]:
    """One card, one app that shares it, one pod too many; unless `stops_when_full`, the app goes and the pod gets its place."""
    scenario.api.create(objects.build_node_object(objects.NODE_NAME, objects.NODE_ADDRESS, [card]))
    await scenario.wait_until_known(objects.NODE_NAME)
    empty = await scenario.read_stage("empty")
    scenario.print_text(format_empty_stage(empty, card))

    scenario.api.create(objects.build_stateful_set(app.name, replicas=app.replicas, units=app.units_per_pod))
    shared = await scenario.read_stage("shared", await scenario.wait_until_decided(app.replicas))
    scenario.print_text(format_app_stage(shared, card, app))
    stages = [empty, shared]

    late_units = _find_units_that_must_wait(shared, card)
    if late_units is None:
        return stages
    scenario.api.create(objects.build_pod_object(objects.LATE_POD, units=late_units))
    full = await scenario.read_stage("full", await scenario.wait_until_decided(app.replicas + 1))
    scenario.print_text(
        format_full_stage(await read_explanation(scenario.access.kubeconfig, "default", objects.LATE_POD), late_units)
    )
    stages.append(full)
    if not stops_when_full:
        scenario.api.delete("statefulsets", app.name)
        freed = await scenario.read_stage("freed", await scenario.wait_until_placed(1))
        scenario.print_text(format_freed_stage(freed, app))
        stages.append(freed)
    return stages


async def run_mixed_part(scenario: DemoScenario) -> None:
    """A cluster with four card models and 41 pods, in the order in which they would come."""
    scenario.api.delete("pods", objects.LATE_POD)
    await scenario.wait_until(lambda: not scenario.api.list_pods(), "the first part is gone")
    scenario.api.delete("nodes", objects.NODE_NAME)
    for number, (name, cards) in enumerate(objects.MIXED_NODES.items(), start=1):
        scenario.api.create(objects.build_node_object(name, f"10.0.0.{number}", cards))
    took_ms = 0.0
    for job in objects.MIXED_WORKLOADS:
        scenario.api.create(objects.build_deployment(job))
        took_ms += await scenario.wait_until_placed(_count_pods_until(job))
    scenario.print_text(format_mixed_stage(await scenario.read_stage("mixed", took_ms), objects.MIXED_WORKLOADS))


def _find_units_that_must_wait(stage: DemoStage, card: CardModel) -> int | None:
    """The smallest request that must wait now and will fit when the app is gone; None if the app is not placed."""
    if not stage.placed:
        return None
    free = max(each.free_units for view in stage.cluster.nodes for each in view.node.cards)
    return free + 1 if free < card.units else None


def _count_pods_until(last: DemoWorkload) -> int:
    jobs = objects.MIXED_WORKLOADS
    return sum(job.replicas for job in jobs[: jobs.index(last) + 1])


def _is_decided(pod: Pod) -> bool:
    """Whether the pod is placed or unschedulable. A failed bind is no decision: the scheduler retries a second later."""
    return _is_placed(pod) or find_unschedulable_message(pod) is not None


def _is_placed(pod: Pod) -> bool:
    return bool(pod["spec"].get("nodeName"))
