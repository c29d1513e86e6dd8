"""The machine under test: its first card, the library in place, an agent's back end that counts, and programs run under it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.fakes.driver.build import build_callers
from tests.support.processes import REPOSITORY
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload.backend import PreloadBackEnd, PreloadPaths
from vrampack.agent.limits.preload.files import HOST_FOLDER, LIBRARY
from vrampack.agent.limits.workload import ResolvedContainer

HERE = Path(__file__).parent
CONTAINER_VARIABLE = "GPU_TEST_CONTAINER"
"""Says which container a program is in: there is no kubelet here."""
TIMEOUT_SECONDS = 60

Json: TypeAlias = Any
"""What a check printed; each field is looked at where it is judged."""


@dataclass(frozen=True, slots=True)
class RealCard:
    uuid: str
    name: str
    driver: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One program's end."""

    code: int
    out: str
    complaint: str

    @property
    def said(self) -> Json:
        """The JSON of its last line; empty where it failed before it said anything."""
        lines = self.out.strip().splitlines()
        return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}


def first_card() -> RealCard | None:
    """What nvidia-smi reports without our library; None where there is no GPU."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = "--query-gpu=uuid,name,driver_version,memory.total"
    done = subprocess.run(
        ["nvidia-smi", "-i", "0", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return None
    uuid, name, driver, memory = (part.strip() for part in done.stdout.splitlines()[0].split(","))
    return RealCard(uuid, name, driver, int(memory))


def interception() -> str:
    """Which sandbox is between programs and the kernel, as far as it shows; empty for none."""
    version = Path("/proc/version").read_text()
    return "gVisor" if "gVisor" in version or Path("/proc/sentry-meminfo").exists() else ""


@dataclass(frozen=True, slots=True)
class ExportProgram:
    process: asyncio.subprocess.Process

    async def read_line(self) -> str:
        """What it says next."""
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return (await self.process.stdout.readline()).decode().strip()

    def resume(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")


class GpuMachine:
    """Programs run with the library or without it; the back end runs in this process."""

    def __init__(self, card: RealCard, back_end: PreloadBackEnd | None, programs: Path) -> None:
        self.card = card
        self._back_end = back_end
        self.cuda = programs / "cuda"
        self._programs = build_callers(programs)

    @property
    def back_end(self) -> PreloadBackEnd:
        if self._back_end is None:
            raise ValueError("nothing is limited here: that needs root")
        return self._back_end

    @classmethod
    @asynccontextmanager
    async def limited_to(cls, card: RealCard, limit_mib: int, scratch: Path) -> AsyncIterator[GpuMachine]:
        """Build, install, and answer until the end. As root: the library's folder is a fixed one."""
        await asyncio.to_thread(_build, scratch)
        back_end = PreloadBackEnd(
            PreloadPaths(shipped=REPOSITORY / "build" / LIBRARY, journal=scratch / "books"),
            resolve_container=lambda _owner: ResolvedContainer("gpu", {card.uuid: limit_mib}),
            get_minors=lambda: {card.uuid: 0},
            driver_version=lambda: card.driver,
            find_owner=_find_owner,
        )
        await back_end.start()
        try:
            yield cls(card, back_end, scratch)
        finally:
            back_end.stop()

    async def run(self, *command: str | Path, is_limited: bool = True, container: str = "gpu-test") -> ProgramRun:
        """To its end."""
        process = await self._start(command, is_limited=is_limited, container=container)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            out, complaint = await process.communicate()
        return ProgramRun(process.returncode or 0, out.decode(), complaint.decode())

    @asynccontextmanager
    async def holding(self, mib: int, *, container: str = "gpu-test") -> AsyncIterator[Json]:
        """Runs a process that holds so much, and returns what it reported."""
        process = await self._start([self.cuda, "hold", str(mib)], is_limited=True, container=container)
        try:
            assert process.stdout is not None
            async with asyncio.timeout(TIMEOUT_SECONDS):
                line = await process.stdout.readline()
            yield json.loads(line or b"{}")
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.communicate()

    @asynccontextmanager
    async def app(self, *arguments: str) -> AsyncIterator[str]:
        """Runs the program of the simulated driver with `--hold`, and yields what it printed. It is killed at the end."""
        async with self._held(self._programs.app, *self._app_options, "--hold", *arguments) as said:
            yield said

    @asynccontextmanager
    async def request(self, *arguments: str) -> AsyncIterator[str]:
        """The program that makes one request for memory, the same."""
        async with self._held(self._programs.request, *arguments) as said:
            yield said

    @asynccontextmanager
    async def _held(self, *command: str | Path) -> AsyncIterator[str]:
        process = await self._start(command, is_limited=False)
        assert process.stdout is not None
        said = []
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while (line := await process.stdout.readline()) and line != b"holding\n":
                    said.append(line.decode().strip())
            yield ", ".join(said) or "error: it said nothing"
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    @asynccontextmanager
    async def export(self, *arguments: str) -> AsyncIterator[ExportProgram]:
        """The program that exports memory."""
        process = await self._start([self._programs.export, *arguments], is_limited=False)
        try:
            yield ExportProgram(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def card_used_mib(self) -> int:
        """As the driver tells a program without a limit."""
        query = ["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return int((await self.run(*query, is_limited=False)).out.split()[0])

    @property
    def _app_options(self) -> list[str]:
        return ["--driver", self._branch]

    @property
    def _branch(self) -> str:
        return self.card.driver.partition(".")[0]

    def _environment(self, *, is_limited: bool, container: str) -> Mapping[str, str]:
        preload = {"LD_PRELOAD": str(HOST_FOLDER / LIBRARY)} if is_limited else {}
        return {**os.environ, "RM_BRANCH": self._branch, CONTAINER_VARIABLE: container, **preload}

    def held_bytes(self, pid: int) -> int:
        """As the back end counts."""
        return sum(use.held_bytes for use in self.back_end.list_processes() if use.pid == pid)

    async def _start(
        self, command: Sequence[str | Path], *, is_limited: bool, container: str = "gpu-test"
    ) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        environment = self._environment(is_limited=is_limited, container=container)
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


def _find_owner(pid: int) -> CgroupOwner:
    """The container of the program, by its environment."""
    for variable in Path(f"/proc/{pid}/environ").read_text().split("\0"):
        name, _, value = variable.partition("=")
        if name == CONTAINER_VARIABLE:
            return CgroupOwner(value, value)
    raise ValueError(f"process {pid} has no {CONTAINER_VARIABLE}")


def _build(scratch: Path) -> None:
    """The library as it ships, and the checks."""
    subprocess.run(["make", "--silent", "preload"], cwd=REPOSITORY, check=True)
    compiler = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Werror"]
    subprocess.run([*compiler, "-o", scratch / "cuda", HERE / "cuda.c", "-ldl"], check=True)
