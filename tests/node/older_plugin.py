"""gpushare's device plugin, simulated by this process: it offers ids in its own form and tells a container its card."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from tests.fakes.kubelet.scripted_plugin import ScriptedPlugin
from tests.node.kubelet import DEVICE_PLUGINS
from tests.node.node import NAMESPACE, LiveNode

START_SECONDS = 10
AGENT = "app.kubernetes.io/name=vrampack-agent"


@contextmanager
def older_plugin(ids: Iterable[str], environment: dict[str, str]) -> Iterator[None]:
    """It is registered inside, and gone outside, without a word to kubelet."""
    registered: Future[Callable[[], object]] = Future()

    async def serve() -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        async with ScriptedPlugin(DEVICE_PLUGINS, ids, name="aliyungpushare.sock") as plugin:
            plugin.options.pre_start_required = False
            plugin.envs = environment
            await plugin.register()
            registered.set_result(lambda: loop.call_soon_threadsafe(over.set))
            await over.wait()

    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(lambda: asyncio.run(serve()))
        end = registered.result(START_SECONDS)
        try:
            yield
        finally:
            end()
            serving.result()


@contextmanager
def without_agent(node: LiveNode, label: str) -> Iterator[None]:
    """As before the install: no agent on the node. It comes back with the label."""
    (name,) = (each["metadata"]["name"] for each in node.list_objects("nodes"))
    node.kubectl("label", "node", name, f"{label}-")
    try:
        node.wait(lambda: not node.list_objects("pods", "-n", NAMESPACE, "-l", AGENT), what="the agent is gone")
        yield
    finally:
        node.kubectl("label", "node", name, f"{label}=true")
        node.wait_ready(AGENT, namespace=NAMESPACE)
