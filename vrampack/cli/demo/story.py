"""What the demo does, step by step. Each step waits for the cluster to say so, then reads it back and shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vrampack.cli.demo import objects
from vrampack.cli.demo.objects import CardKind, Job
from vrampack.cli.demo.reading import Stage, read_explanation, read_stage, refusal
from vrampack.cli.demo.report import after_the_app_is_gone, app_text, empty_text, mixed_text, waiting_text
from vrampack.simulator.apiserver import ApiServer

STEP_SECONDS = 30
"""Each step takes a few milliseconds; a machine that is busy with something else gets the rest."""
Pod = dict[str, Any]  # Any: one field of an API object, read where it is used


class StoryError(RuntimeError):
    """The cluster did not do what the step waits for."""


class Story:
    """The cluster that is told about, and where the text goes."""

    def __init__(self, api: ApiServer, kubeconfig: Path, say: Callable[[str], None]) -> None:
        self.api = api
        self.kubeconfig = kubeconfig
        self.say = say
        self._changed = asyncio.Event()
        api.store.subscribe(self._changed.set)

    async def until(self, is_so: Callable[[], bool], what: str) -> float:
        """Wait for a state of the cluster; the milliseconds it took. Raises `StoryError`."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(STEP_SECONDS):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise StoryError(f"waited {STEP_SECONDS} s for this: {what}") from error
        return (time.perf_counter() - started) * 1000

    async def settled(self, count: int) -> float:
        """Wait until `count` pods are there and each has its place, or was told why not."""
        return await self.until(
            lambda: len(pods := self.api.pods()) == count and all(map(_is_decided, pods)),
            f"{count} pods are placed or refused",
        )

    async def all_placed(self, count: int) -> float:
        """Wait until there are `count` pods and each has its place."""
        return await self.until(
            lambda: len(pods := self.api.pods()) == count and all(map(_is_placed, pods)),
            f"{count} pods are left, each with its place",
        )

    async def stage(self, name: str, took_ms: float = 0.0) -> Stage:
        return await read_stage(name, self.api.url, took_ms=took_ms)


async def first_part(story: Story, card: CardKind, app: Job, *, is_kept: bool) -> list[Stage]:
    """One card, one app that shares it, one pod too many; unless `is_kept` the app goes and the pod gets its place."""
    story.api.create(objects.node(objects.NODE, objects.NODE_ADDRESS, [card]))
    empty = await story.stage("empty")
    story.say(empty_text(empty, card))

    story.api.create(objects.stateful_set(app.name, replicas=app.replicas, units=app.units))
    shared = await story.stage("shared", await story.settled(app.replicas))
    story.say(app_text(shared, card, app))
    stages = [empty, shared]

    late_units = _one_more_than_fits(shared, card)
    if late_units is None:
        return stages
    story.api.create(objects.pod(objects.LATECOMER, units=late_units))
    full = await story.stage("full", await story.settled(app.replicas + 1))
    story.say(waiting_text(await read_explanation(story.kubeconfig, "default", objects.LATECOMER), late_units))
    stages.append(full)
    if not is_kept:
        story.api.delete("statefulsets", app.name)
        freed = await story.stage("freed", await story.all_placed(1))
        story.say(after_the_app_is_gone(freed, app))
        stages.append(freed)
    return stages


async def mixed_part(story: Story) -> None:
    """A cluster of four models of card and some forty pods, in the order in which they would come."""
    story.api.delete("pods", objects.LATECOMER)
    await story.until(lambda: not story.api.pods(), "the first part is gone")
    story.api.delete("nodes", objects.NODE)
    for number, (name, cards) in enumerate(objects.MIXED_NODES.items(), start=1):
        story.api.create(objects.node(name, f"10.0.0.{number}", cards))
    took_ms = 0.0
    for job in objects.MIXED_JOBS:
        story.api.create(objects.deployment(job))
        took_ms += await story.all_placed(_pods_until(job))
    story.say(mixed_text(await story.stage("mixed", took_ms), objects.MIXED_JOBS))


def _one_more_than_fits(stage: Stage, card: CardKind) -> int | None:
    """The smallest ask that has to wait now and will fit when the app is gone; None where the app has no place."""
    if not stage.placed:
        return None
    free = max(each.free_units for view in stage.cluster.nodes for each in view.node.cards)
    return free + 1 if free < card.units else None


def _pods_until(last: Job) -> int:
    jobs = objects.MIXED_JOBS
    return sum(job.replicas for job in jobs[: jobs.index(last) + 1])


def _is_decided(pod: Pod) -> bool:
    """A bind that failed is no decision: the scheduler tries again a second later."""
    return _is_placed(pod) or refusal(pod) is not None


def _is_placed(pod: Pod) -> bool:
    return bool(pod["spec"].get("nodeName"))
