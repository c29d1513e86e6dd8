"""The unix socket that the createRuntime hook asks before a container with a limit may start.

    vrampack-hook --one line of JSON--> this server --question--> decider
                  <-{"ok":true} or {"ok":false,"error":".."}-

Only the agent's own user may ask: root, as which the hook runs. Everything that is not a clear yes is a no, and the container
does not start. The decider knows whose container it is and how much it may use: `pod_limits.py` in Kubernetes,
`host/limits.py` on a host without it.

Versions of the line: 1 is for a container whose pod the runtime's annotations name. 2 is for one without a pod, and adds `env`.
So an agent of version 1 refuses a container for which it would have to trust the environment, and a hook of version 1 gets no
yes that requires a mount.
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

from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.unix_listener import UnixListener, read_peer_credentials

HOOK_SOCKET = Path("/run/vrampack/hook.sock")
MAX_LINE_BYTES = 16 << 10
"""The most that the hook sends."""
POD_VERSION, HOST_VERSION = 1, 2
"""The versions of the line."""

log = logging.getLogger(__name__)


class HookQuestion(msgspec.Struct, frozen=True):
    """What `shim/hook/question.c` writes. Strings are empty if the runtime said nothing."""

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
    """`NAME=value` of the variables that configure a host without Kubernetes. Never trusted for a pod's container."""


class HookAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    ok: bool
    error: str = ""
    mount: str = ""
    """A folder that the hook is to mount into the container, at the same path, with its `ld.so.preload`."""


HookDecider: TypeAlias = Callable[[HookQuestion], Awaitable[str]]
"""Puts the limit of a container in force and answers with the folder to mount, or nothing. Raises `LimitError`."""


class HookServer:
    """Answers one question per connection."""

    def __init__(
        self,
        path: Path,
        decide: HookDecider,
        *,
        on_refused: Callable[[HookQuestion, str], None] = lambda _question, _text: None,
        timeout_seconds: float = 4.0,
    ) -> None:
        """`timeout_seconds` is less than the hook's own 5 s, so that the hook can report what was slow.

        `on_refused` is called for each container that may not start, with the reason.
        """
        self._listener = UnixListener(path)
        self._decide = decide
        self._on_refused = on_refused
        self._timeout_seconds = timeout_seconds
        self._server: asyncio.Server | None = None
        self.allowed_count = 0
        self.refused_count = 0

    @property
    def answer_counts(self) -> tuple[int, int]:
        """How many containers were allowed and refused: the proof that the runtime calls the hook."""
        return self.allowed_count, self.refused_count

    @property
    def is_listening(self) -> bool:
        return self._server is not None

    async def start(self) -> None:
        """Listen first, then take over the socket's name: a hook never finds a socket that does not answer.

        Raises `OSError`, and may then be called again.
        """
        listening = self._listener.bind_socket(socket.SOCK_STREAM, mode=0o600)
        self._server = await asyncio.start_unix_server(self._serve_connection, sock=listening, limit=MAX_LINE_BYTES)
        try:
            self._listener.publish_socket()
        except OSError:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._listener.remove_socket()
            self._server = None

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = await self._answer_question(reader, writer)
        self.allowed_count += answer.ok
        self.refused_count += not answer.ok
        try:
            writer.write(msgspec.json.encode(answer) + b"\n")
            async with asyncio.timeout(self._timeout_seconds):
                await writer.drain()
        except (ConnectionError, TimeoutError):
            log.warning("hook disconnected unanswered ok=%s", answer.ok)
        finally:
            writer.close()

    async def _answer_question(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HookAnswer:
        question: HookQuestion | None = None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                line = await _read_line(reader)
                _check_peer(writer)  # after reading: closing with unread bytes would destroy the answer
                question = _parse_question(line)
                return HookAnswer(ok=True, mount=await self._decide(question))
        except LimitError as error:
            log.warning("container refused reason=%s", error)
            text = str(error)
        except TimeoutError:
            log.warning("container refused reason=timeout seconds=%s", self._timeout_seconds)
            text = f"the limit was not in force within {self._timeout_seconds:g} s"
        except Exception:
            log.exception("container refused reason=internal_error")
            text = "the agent failed; see its log"
        if question is not None:
            self._on_refused(question, text)
        return HookAnswer(ok=False, error=text)


def _check_peer(writer: asyncio.StreamWriter) -> None:
    uid = read_peer_credentials(writer.get_extra_info("socket")).uid
    if uid != os.geteuid():
        raise LimitError(f"uid {uid} may not ask")


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil()
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise LimitError(f"not one line of at most {MAX_LINE_BYTES} bytes") from error


def _parse_question(line: bytes) -> HookQuestion:
    try:
        question = msgspec.json.decode(line, type=HookQuestion)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LimitError(f"not a question: {error}") from error
    if question.v not in {POD_VERSION, HOST_VERSION}:
        text = f"hook and agent are of different versions: the hook speaks {question.v}, the agent 1 and 2"
        raise LimitError(text)
    return question
