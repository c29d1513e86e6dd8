"""Processes that speak the protocol as the library does, and that a test may kill: real processes on real sockets."""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from vrampack.agent.limits.preload.wire import (
    ANSWER,
    ONLY_CARD,
    CardHolding,
    LibraryAnswer,
    LibraryQuestion,
    MessageKind,
    read_answer,
    write_question,
)

MIB = 1 << 20
SECONDS = 10

PROGRAM = """
import socket, sys
line = None
for order in sys.stdin:
    word, _, text = order.strip().partition(" ")
    if word == "open":
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.settimeout(10)
        line.connect(text)
        print("open", flush=True)
    elif word == "say":
        line.send(bytes.fromhex(text))
        print(line.recv(4096).hex(), flush=True)
    elif word == "tell":
        line.send(bytes.fromhex(text))
        print("told", flush=True)
    elif word == "close":
        line.close()
        print("closed", flush=True)
"""


def build_question(kind: MessageKind, *held: tuple[int, int], sequence: int = 1) -> LibraryQuestion:
    """`held`: minor and MiB."""
    return LibraryQuestion(kind, sequence, tuple(CardHolding(minor, mib * MIB) for minor, mib in held))


class PreloadClient:
    """A connection of this process."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(0)
        self.socket.connect(str(path))
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def send(self, packet: bytes) -> None:
        self.socket.send(packet)

    async def receive(self) -> LibraryAnswer | None:
        """None when the agent has hung up."""
        async with asyncio.timeout(SECONDS):
            packet = await self._loop.sock_recv(self.socket, 4096)
        return read_answer(packet) if packet else None

    async def send_question(self, kind: MessageKind, *held: tuple[int, int], sequence: int = 1) -> LibraryAnswer:
        self.send(write_question(build_question(kind, *held, sequence=sequence)))
        answer = await self.receive()
        assert answer is not None
        return answer

    def send_notice(self, *held: tuple[int, int]) -> None:
        self.send(write_question(build_question(MessageKind.GIVE, *held)))


class PreloadClientProcess:
    """Another process that carries out a test's commands."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def started(cls) -> PreloadClientProcess:
        return cls(await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", PROGRAM, stdin=PIPE, stdout=PIPE))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def open(self, path: Path) -> None:
        assert await self._order(f"open {path}") == "open"

    async def close(self) -> None:
        assert await self._order("close") == "closed"

    async def ask(self, kind: MessageKind, *held: tuple[int, int]) -> LibraryAnswer:
        packet = bytes.fromhex(await self._order(f"say {write_question(build_question(kind, *held)).hex()}"))
        assert len(packet) == ANSWER.size
        return read_answer(packet)

    async def tell(self, *held: tuple[int, int]) -> None:
        assert await self._order(f"tell {write_question(build_question(MessageKind.GIVE, *held)).hex()}") == "told"

    async def kill(self) -> None:
        with suppress(ProcessLookupError):  # it ends by itself when the other side closes
            self._process.kill()
        await self._process.communicate()

    async def _order(self, text: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{text}\n".encode())
        async with asyncio.timeout(SECONDS):
            return (await self._process.stdout.readline()).decode().strip()


__all__ = ["MIB", "ONLY_CARD", "PreloadClient", "PreloadClientProcess", "build_question"]
