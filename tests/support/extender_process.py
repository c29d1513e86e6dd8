"""`vrampack serve` as a process of its own, and the ways to talk to it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.support.processes import choose_free_ports
from vrampack.simulator.kubeconfig import write_kubeconfig

WITHIN_SECONDS = 20
"""Longer than a Python process takes to start on a busy machine."""


class ExtenderProcess:
    """One service that was started, and its two listeners."""

    def __init__(self, process: Process, session: aiohttp.ClientSession, verbs: int, health: int) -> None:
        self.process = process
        self.verbs = f"http://127.0.0.1:{verbs}"
        self.health = f"http://127.0.0.1:{health}"
        self._session = session

    async def get(self, url: str) -> tuple[int, str]:
        async with self._session.get(url) as reply:
            return reply.status, await reply.text()

    async def post(self, path: str, body: object) -> tuple[int, str]:
        async with self._session.post(self.verbs + path, json=body) as reply:
            return reply.status, await reply.text()

    async def wait_for_answer(self, url: str, is_so: Callable[[int, str], bool]) -> tuple[int, str]:
        """Repeat the request until the answer is as wanted; the process has no other way to report it."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while True:
                try:
                    status, text = await self.get(url)
                except aiohttp.ClientConnectionError:
                    status, text = 0, ""
                if is_so(status, text):
                    return status, text
                await asyncio.sleep(0.02)

    async def wait_until_ready(self) -> None:
        await self.wait_for_answer(f"{self.verbs}/readyz", lambda status, _: status == 200)

    async def wait_for_exit(self) -> int:
        async with asyncio.timeout(WITHIN_SECONDS):
            return await self.process.wait()

    async def read_log(self) -> str:
        """What it wrote, once it has ended."""
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()


@asynccontextmanager
async def run_extender_process(folder: Path, api_url: str, *arguments: str) -> AsyncIterator[ExtenderProcess]:
    """A service of that API server; killed when the block ends, if it still runs."""
    async with _started("--kubeconfig", str(write_kubeconfig(folder, api_url)), *arguments) as running:
        yield running


@asynccontextmanager
async def run_embedded_extender(file: Path) -> AsyncIterator[ExtenderProcess]:
    """A service on the objects of a file."""
    async with _started("--embedded", str(file)) as running:
        yield running


@asynccontextmanager
async def _started(*arguments: str) -> AsyncIterator[ExtenderProcess]:
    verbs, health = choose_free_ports(2)
    listen = ["--listen", f"127.0.0.1:{verbs}", "--health-listen", f"127.0.0.1:{health}", "--ready-after", "0"]
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vrampack.cli", "serve", *listen, *arguments, stdout=PIPE, stderr=PIPE, env=environment
    )
    try:
        async with aiohttp.ClientSession() as session:
            yield ExtenderProcess(process, session, verbs, health)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
