"""`vrampack agent` as a process of its own, with a kubelet and an API server in this process and NVIDIA's library simulated in C."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.fakes.kubelet.kubelet import FakeKubelet
from tests.fakes.kubelet.scripted_plugin import MEMORY
from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import StubGpu
from tests.support.nvml_stub import stub_folder
from tests.support.processes import choose_free_ports
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

NODE = "gpu-0"
WITHIN_SECONDS = 30
"""Longer than a Python process takes to start on a busy machine."""


class AgentProcess:
    """One agent that was started, with what is around it."""

    def __init__(
        self, process: Process, api: ApiServer, kubelet: FakeKubelet, machine: FakeNvmlMachine, health: str
    ) -> None:
        self.process = process
        self.api = api
        self.kubelet = kubelet
        self.machine = machine
        self.health = health

    async def get(self, path: str) -> tuple[int, str]:
        """A page of the health listener."""
        async with aiohttp.ClientSession() as session, session.get(self.health + path) as reply:
            return reply.status, await reply.text()

    async def wait_for_answer(self, path: str, is_so: Callable[[int, str], bool]) -> tuple[int, str]:
        """Repeat the request until the answer is as wanted; the process has no other way to report it."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while True:
                try:
                    status, text = await self.get(path)
                except aiohttp.ClientConnectionError:
                    status, text = 0, ""
                if is_so(status, text):
                    return status, text
                await asyncio.sleep(0.02)

    async def wait_until_registered(self) -> None:
        await self.kubelet.registered(MEMORY, timeout_seconds=WITHIN_SECONDS)
        await self.wait_for_answer("/readyz", lambda status, _: status == 200)

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        async with asyncio.timeout(WITHIN_SECONDS):
            return await self.process.wait()

    async def read_log(self) -> str:
        """What it wrote, once it has ended."""
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()


@asynccontextmanager
async def run_agent(gpus: tuple[StubGpu, ...], *flags: str, hangs: bool = False) -> AsyncIterator[AgentProcess]:
    """An agent of a node with these cards, whose driver hangs if told; killed when the block ends."""
    with tempfile.TemporaryDirectory(prefix="agent") as name:
        folder = Path(name)
        machine = FakeNvmlMachine(folder / "nvml" / "state", gpus=gpus)
        if hangs:
            machine.hang("*")
        (port,) = choose_free_ports(1)
        config = folder / "agent.yaml"
        config.write_text(
            "apiVersion: vrampack.dev/v1\nkind: AgentConfiguration\n"
            f"kubelet_folder: {folder}\nlisten: {{health: '127.0.0.1:{port}', status_socket: '{folder}/status.sock'}}\n"
        )
        async with ApiServer() as api, FakeKubelet(folder, seed=1) as kubelet:
            api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
            kubeconfig = write_kubeconfig(folder, api.url)
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-m",
                    "vrampack.cli",
                    "agent",
                    "--config",
                    str(config),
                    "--kubeconfig",
                    str(kubeconfig),
                    *flags,
                ),
                stderr=PIPE,
                env={**os.environ, "NODE_NAME": NODE, **machine.environment(stub_folder())},
            )
            try:
                yield AgentProcess(process, api, kubelet, machine, f"http://127.0.0.1:{port}")
            finally:
                if process.returncode is None:
                    process.kill()
                await process.communicate()
