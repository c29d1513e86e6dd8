"""The demo's extender: `vrampack serve` as a separate process, on free loopback ports."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from vrampack.cards import well_known
from vrampack.simulator.scheduling.settings import SchedulerSettings

LOOPBACK = "127.0.0.1"
PORTS = range(13_000, 20_000)
"""The extender's are among them. Programs that listen on any free port get one from 32,768 on: one of those could be taken
between the moment when it is found free and the extender's start."""
READY_SECONDS = 180
"""Starting takes one second; the rest is for a busy or emulated machine: it takes over half a minute under qemu."""
CONNECT_SECONDS = 3
"""On loopback a connection takes microseconds, and a firewall that drops packets never answers."""
POLL_SECONDS = 0.02
STOP_SECONDS = 10
LOG_TAIL_LINES = 20


class ExtenderStartError(RuntimeError):
    """The extender did not start; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class ExtenderAddresses:
    """Where the extender listens."""

    verbs_port: int
    health_port: int

    @property
    def url_prefix(self) -> str:
        """The value for a scheduler's `urlPrefix`."""
        return f"http://{LOOPBACK}:{self.verbs_port}/gpushare-scheduler"

    @property
    def health_url(self) -> str:
        return f"http://{LOOPBACK}:{self.health_port}"


def find_free_addresses() -> ExtenderAddresses:
    """Addresses with two ports that are free now. Raises `ExtenderStartError` if connections to them fail."""
    with _listen_on_free_port() as one, _listen_on_free_port() as two:
        try:
            socket.create_connection(one.getsockname(), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            raise ExtenderStartError(
                f"a connection to {LOOPBACK} failed: {error.strerror or error}. All parts of the demo speak over loopback: "
                "see that it is up (`ip link set lo up`) and that no firewall closes it"
            ) from error
        return ExtenderAddresses(one.getsockname()[1], two.getsockname()[1])


def _listen_on_free_port() -> socket.socket:
    for port in random.sample(PORTS, len(PORTS)):
        try:
            return socket.create_server((LOOPBACK, port))
        except OSError:
            continue
    raise ExtenderStartError(f"no port of {LOOPBACK} is free between {PORTS.start} and {PORTS.stop}")


def build_scheduler_settings(url_prefix: str) -> SchedulerSettings:
    """The shipped configuration's extender entry; in the demo, pods may also omit the scheduler's name."""
    return SchedulerSettings(
        url_prefix,
        scheduler_names=("vrampack", "default-scheduler"),
        weight=10,
        managed_resources=frozenset({well_known.MEMORY_RESOURCE}),
    )


@asynccontextmanager
async def run_extender(addresses: ExtenderAddresses, kubeconfig: Path, folder: Path) -> AsyncIterator[None]:
    """Run the extender, ready for calls, inside the block; SIGTERM stops it, as in a cluster. Raises `ExtenderStartError`."""
    log = folder / "extender.log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # so that an `extender` in the current folder is not imported
            "-m",
            "vrampack.cli",
            "serve",
            "--kubeconfig",
            kubeconfig,
            "--listen",
            f"{LOOPBACK}:{addresses.verbs_port}",
            "--health-listen",
            f"{LOOPBACK}:{addresses.health_port}",
            "--ready-after=0",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK},
            process_group=0,  # Ctrl-C goes to the demo only, which then stops it in order
        )
    try:
        await _wait_until_ready(process, addresses.health_url, log)
        yield
    finally:
        await _stop_process(process)


async def _wait_until_ready(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession() as session:
            while not await is_answered_ok(session, f"{url}/readyz"):
                if process.returncode is not None:
                    raise ExtenderStartError(f"the extender ended with {process.returncode}:\n{_read_log_tail(log)}")
                await asyncio.sleep(POLL_SECONDS)  # another process has no event to await here
    except TimeoutError as error:
        raise ExtenderStartError(
            f"the extender was not ready within {READY_SECONDS} s:\n{_read_log_tail(log)}"
        ) from error


async def is_answered_ok(session: aiohttp.ClientSession, url: str) -> bool:
    """Whether a GET of this URL is answered by a status below 400 now."""
    try:
        async with session.get(url) as answer:
            return answer.ok
    except aiohttp.ClientConnectionError:
        return False


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _read_log_tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
