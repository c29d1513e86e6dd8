"""Chooses the pods whose logs and metrics are read: all that decide about placement, and agents with problems first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial

from vrampack.cli.support_bundle.bundle_file import BundledFile, PartContent, encode_text_file
from vrampack.cli.support_bundle.bundle_reader import LOG_BYTES, METRICS_BYTES, BundleReader
from vrampack.cli.support_bundle.kept_objects import OwnPod
from vrampack.kube.errors import NoAnswerError, RefusedError

MAX_AGENTS = 20
MAX_OTHERS = 20
CALLS_AT_ONCE = 8
AGENT_CONTAINER = "agent"
METRICS_PORT_NAME = "health"


def choose_pods(pods: Iterable[OwnPod], node_names: Collection[str]) -> tuple[list[OwnPod], tuple[str, ...]]:
    """Pods of these nodes come first, then unready or restarted ones; also a note of how many are left out."""

    def rank(pod: OwnPod) -> tuple[bool, bool, int, str]:
        return pod.spec.node_name not in node_names, pod.is_ready, -pod.restarts, pod.metadata.name

    ordered = sorted(pods, key=rank)
    agents = [pod for pod in ordered if any(each.name == AGENT_CONTAINER for each in pod.containers)]
    others = [pod for pod in ordered if pod not in agents]
    chosen = [*others[:MAX_OTHERS], *agents[:MAX_AGENTS]]
    left_out = len(ordered) - len(chosen)
    return chosen, (f"{left_out} more pods are left out; --node chooses whose come first",) if left_out else ()


async def collect_logs(reader: BundleReader, pods: Sequence[OwnPod]) -> PartContent:
    """The logs of every container, and of its previous instance if it was restarted."""

    async def read(pod: OwnPod, container: str, *, is_previous: bool) -> BundledFile:
        name = pod.metadata.name
        text = await reader.read_log(name, container, is_previous=is_previous)
        ending = "previous.log" if is_previous else "log"
        return encode_text_file(f"logs/{name}/{container}.{ending}", text, LOG_BYTES)

    wanted = [
        (pod, container.name, is_previous)
        for pod in pods
        for container in pod.containers
        for is_previous in (False, True)
        if not is_previous or (container.name in pod.statuses and pod.statuses[container.name].restart_count)
    ]
    return await _collect_each(
        [
            (f"log of {pod.metadata.name}/{name}", partial(read, pod, name, is_previous=is_previous))
            for pod, name, is_previous in wanted
        ]
    )


async def collect_metrics(reader: BundleReader, pods: Sequence[OwnPod]) -> PartContent:
    """The metrics page of every pod with a port for it. One on a host's loopback is unreachable, and becomes a note."""

    async def read(pod: OwnPod, port: int) -> BundledFile:
        text = await reader.read_metrics(pod.metadata.name, port)
        return encode_text_file(f"metrics/{pod.metadata.name}.txt", text, METRICS_BYTES)

    wanted = [
        (pod, port.container_port)
        for pod in pods
        for container in pod.containers
        for port in container.ports or ()
        if port.name == METRICS_PORT_NAME
    ]
    return await _collect_each([(f"metrics of {pod.metadata.name}", partial(read, pod, port)) for pod, port in wanted])


async def _collect_each(calls: Sequence[tuple[str, Callable[[], Awaitable[BundledFile]]]]) -> PartContent:
    """Make the calls, a few at a time; a call that is refused or not answered becomes a note."""
    free = asyncio.Semaphore(CALLS_AT_ONCE)

    async def run(what: str, call: Callable[[], Awaitable[BundledFile]]) -> BundledFile | str:
        async with free:
            try:
                return await call()
            except (RefusedError, NoAnswerError) as error:
                return f"no {what}: {error}"

    results = await asyncio.gather(*(run(what, call) for what, call in calls))
    return PartContent(
        tuple(each for each in results if isinstance(each, BundledFile)),
        tuple(each for each in results if isinstance(each, str)),
    )
