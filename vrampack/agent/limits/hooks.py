"""The unix socket that the createRuntime hook asks before a container with a limit may start.

    vrampack-hook --one line of JSON--> this server --question--> judge
                  <-{"ok":true} or {"ok":false,"error":".."}-

Only the agent's own user may ask: root, as the hook is. Everything that is not a clear yes is a no, and the container
does not start. Whose container it is and how much it may use is the judge's: `podlimits.py` in Kubernetes,
`hostlimits.py` on a host without it.

Versions of the line: 1 is a container that the runtime's annotations name a pod of. 2 is one that they name none of; it
has `env` besides. So an agent of version 1 refuses what it would have to believe the environment for, and a hook of
version 1 gets no yes that it would have to mount something for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from vrampack.agent.limits.doors import Door, peer
from vrampack.agent.limits.errors import LimitError

HOOK_SOCKET = Path("/run/vrampack/hook.sock")
LINE_BYTES = 16 << 10
"""As much as the hook sends at most."""
NAMES_A_POD, NAMES_NONE = 1, 2
"""The versions of the line."""

logger = logging.getLogger(__name__)


class Question(msgspec.Struct, frozen=True):
    """What `shim/hook/question.c` writes. Strings are empty where the runtime said nothing."""

    v: int
    pid: int
    id: str
    namespace: str
    pod: str
    uid: str
    container: str
    hierarchy: str
    cgroup: str
    env: tuple[str, ...] = ()
    """`NAME=value` of the variables that configure a host without Kubernetes. Never believed of a pod's container."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    ok: bool
    error: str = ""
    mount: str = ""
    """A folder that the hook is to mount into the container, at the same path, with its `ld.so.preload`."""


Judge: TypeAlias = Callable[[Question], Awaitable[str]]
"""Puts the limit of a container in force and answers with the folder to mount, or nothing. Raises `LimitError`."""


class HookServer:
    """Answers one question per connection."""

    def __init__(self, path: Path, judge: Judge, *, timeout_seconds: float = 4.0) -> None:
        """`timeout_seconds`: less than the hook's own 5 s, so that its message says what was slow."""
        self._door = Door(path)
        self._judge = judge
        self._timeout_seconds = timeout_seconds
        self._server: asyncio.Server | None = None
        self.allowed = 0
        """How many containers were let through; with `refused`, the proof that the runtime calls the hook."""
        self.refused = 0

    async def start(self) -> None:
        """Listen, then take the name, from whoever had it: no hook finds a socket that is not answered."""
        listening = self._door.make(socket.SOCK_STREAM, mode=0o600)
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=LINE_BYTES)
        self._door.take()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._door.leave()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = await self._answer(reader, writer)
        self.allowed += answer.ok
        self.refused += not answer.ok
        try:
            writer.write(msgspec.json.encode(answer) + b"\n")
            async with asyncio.timeout(self._timeout_seconds):
                await writer.drain()
        except (ConnectionError, TimeoutError):
            logger.warning("a hook hung up before it was answered ok=%s", answer.ok)
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                line = await _line(reader)
                _check_peer(writer)  # after reading: hanging up on unread bytes would take the answer with it
                mount = await self._judge(_question(line))
        except LimitError as error:
            logger.warning("refused a container why=%s", error)
            return Answer(ok=False, error=str(error))
        except TimeoutError:
            logger.warning("refused a container why=no answer within %s s", self._timeout_seconds)
            return Answer(ok=False, error=f"the limit was not in force within {self._timeout_seconds:g} s")
        except Exception:
            logger.exception("refused a container why=a fault of the agent")
            return Answer(ok=False, error="the agent failed; its log says how")
        return Answer(ok=True, mount=mount)


def _check_peer(writer: asyncio.StreamWriter) -> None:
    uid = peer(writer.get_extra_info("socket")).uid
    if uid != os.geteuid():
        raise LimitError(f"uid {uid} may not ask")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil()
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise LimitError(f"not one line of at most {LINE_BYTES} bytes") from error


def _question(line: bytes) -> Question:
    try:
        question = msgspec.json.decode(line, type=Question)
    except msgspec.DecodeError as error:
        raise LimitError(f"not a question: {error}") from error
    if question.v not in {NAMES_A_POD, NAMES_NONE}:
        text = f"hook and agent are of different versions: the hook speaks {question.v}, the agent 1 and 2"
        raise LimitError(text)
    return question
