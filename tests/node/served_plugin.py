"""A scripted device plugin at the node's kubelet, served by this process while a test goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from tests.fakes.kubelet.scripted_plugin import ScriptedPlugin

START_SECONDS = 10


@contextmanager
def serve_plugin(plugin: ScriptedPlugin) -> Iterator[None]:
    """Registered inside the block, and gone afterwards without notice to kubelet."""
    registered: Future[Callable[[], object]] = Future()

    async def serve() -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        async with plugin:
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
