"""`vrampack agent --standalone` as a process of its own, in a mount namespace where its places are empty."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.fakes.nvml.machine import OLD_DRIVER, FakeNvmlMachine
from tests.fakes.nvml.profiles import PROFILES
from tests.support.nvml_stub import stub_folder
from tests.support.processes import choose_free_ports

EMPTY = """
set -e
for folder in /run /opt /var/lib; do mount -t tmpfs none "$folder"; done
[ -z "$WITH_LIBRARY" ] || install -D /dev/null /opt/vrampack/lib/vrampack/libvrampack.so
exec "$@"
"""


@asynccontextmanager
async def a_command(folder: Path, *, text: str = "", library: str = "yes") -> AsyncIterator[tuple[Process, str]]:
    """The process and where its pages are."""
    machine = FakeNvmlMachine(folder / "nvml", gpus=PROFILES["t4"], driver=OLD_DRIVER)
    (port,) = choose_free_ports(1)
    config = folder / "agent.yaml"
    head = "apiVersion: vrampack.dev/v1\nkind: AgentConfiguration\n"
    config.write_text(f"{head}listen: {{health: '127.0.0.1:{port}'}}\n{text}")
    command = [sys.executable, "-m", "vrampack.cli", "agent", "--standalone", "--config", str(config)]
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", EMPTY, "sh", *command),
        stderr=PIPE,
        env={**os.environ, **machine.environment(stub_folder()), "WITH_LIBRARY": library},
    )
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def page(url: str) -> tuple[int, str]:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as reply:
            return reply.status, await reply.text()
    except aiohttp.ClientConnectionError:
        return 0, ""


async def test_the_standalone_agent_runs_without_an_api_server_or_kubelet(tmp_path: Path) -> None:
    async with a_command(tmp_path) as (process, url), asyncio.timeout(30):
        while await page(f"{url}/readyz") != (200, "ok\n"):
            assert process.returncode is None
            await asyncio.sleep(0.02)
        assert await page(f"{url}/healthz") == (200, "ok\n")
        assert 'vrampack_agent_enforcement_info{mode="preload"} 1.0' in (await page(f"{url}/metrics"))[1]
        process.terminate()
        assert await process.wait() == 0


async def test_the_standalone_agent_exits_when_no_limit_can_be_enforced(tmp_path: Path) -> None:
    async with a_command(tmp_path, library="") as (process, _):
        _, said = await process.communicate()
    assert process.returncode == 1
    assert (
        b"preload neither: /opt/vrampack/lib/vrampack/libvrampack.so is missing from this agent's installation" in said
    )
