"""The unix socket that the createRuntime hook asks before a container with a limit may start.

    vrampack-hook --one line of JSON--> this server --apply--> back end
                  <-{"ok":true} or {"ok":false,"error":".."}-

Only the agent's own user may ask: root, as the hook is. Everything that is not a clear yes is a no, and the container
does not start. The pod is known by the cgroup that kubelet made for it; what the annotations say must agree. How much
the container may use comes from the pod's record as the agent knows it, never from the container's environment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from agent.limits.cgroups import Cgroups, owner
from agent.limits.contract import BackEnd, Identity, Scope
from agent.limits.errors import LimitError

LINE_BYTES = 16 << 10
"""As much as the hook sends at most."""

logger = logging.getLogger(__name__)


class Question(msgspec.Struct, frozen=True):
    """What `shim/hook/main.c` writes. Strings are empty where the runtime said nothing."""

    v: int
    pid: int
    id: str
    namespace: str
    pod: str
    uid: str
    container: str
    hierarchy: str
    cgroup: str


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    ok: bool
    error: str = ""


class HookServer:
    """Answers one question per connection. `limits_of` says None for what nobody knows: that does not start."""

    def __init__(
        self,
        path: Path,
        *,
        cgroups: Cgroups,
        back_end: BackEnd,
        limits_of: Callable[[str, str], Mapping[str, int] | None],
        timeout_seconds: float = 4.0,
    ) -> None:
        """`timeout_seconds`: less than the hook's own 5 s, so that its message says what was slow."""
        self._path = path
        self._cgroups = cgroups
        self._back_end = back_end
        self._limits_of = limits_of
        self._timeout_seconds = timeout_seconds
        self._server: asyncio.Server | None = None
        self._inode = 0
        self.allowed = 0
        """How many containers were let through; with `refused`, the proof that the runtime calls the hook."""
        self.refused = 0

    async def start(self) -> None:
        """Listen, then take the name, from whoever had it: no hook finds a socket that is not answered."""
        making = self._path.with_suffix(".new")
        making.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listening.bind(str(making))
        making.chmod(0o600)
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=LINE_BYTES)
        self._inode = making.stat().st_ino
        making.rename(self._path)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                self._path.unlink()  # and not the socket of an agent that has taken over

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
                await self._put_in_force(_question(line))
        except LimitError as error:
            logger.warning("refused a container why=%s", error)
            return Answer(ok=False, error=str(error))
        except TimeoutError:
            logger.warning("refused a container why=no answer within %s s", self._timeout_seconds)
            return Answer(ok=False, error=f"the limit was not in force within {self._timeout_seconds:g} s")
        except Exception:
            logger.exception("refused a container why=a fault of the agent")
            return Answer(ok=False, error="the agent failed; its log says how")
        return Answer(ok=True)

    async def _put_in_force(self, question: Question) -> None:
        identity = self._identify(question)
        limits = self._limits_of(identity.pod_uid, identity.container)
        if limits is None:
            raise LimitError(f"{identity}: no record gives this container a limit")
        if not limits:
            logger.info("no limit pod=%s/%s container=%s", identity.namespace, identity.name, identity.container)
            return
        applied = await self._back_end.apply(Scope.CONTAINER, identity, limits)
        logger.info(
            "limit pod=%s/%s container=%s standing=%s by=%s mib=%s",
            identity.namespace,
            identity.name,
            identity.container,
            applied.standing,
            applied.by,
            ",".join(f"{uuid}:{mib}" for uuid, mib in sorted(limits.items())),
        )

    def _identify(self, question: Question) -> Identity:
        """The cgroup names the pod, and kubelet alone names cgroups; annotations may be a user's."""
        found = owner(question.cgroup)
        if found is None:
            raise LimitError(
                f"{question.hierarchy}:{question.cgroup} is no pod's: containers without Kubernetes are not served"
            )
        if question.uid not in {"", found.pod_uid}:
            raise LimitError(f"the annotations name pod {question.uid}, the cgroup pod {found.pod_uid}")
        if found.container_id not in {"", question.id}:
            raise LimitError(f"the runtime names container {question.id}, the cgroup {found.container_id}")
        if not question.container:
            raise LimitError(f"pod {found.pod_uid}: the runtime's annotations do not name the container")
        folder = self._cgroups.at(question.hierarchy, question.cgroup)
        return Identity(found.pod_uid, question.namespace, question.pod, question.container, folder)


def _check_peer(writer: asyncio.StreamWriter) -> None:
    peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", peer)
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
    if question.v != 1:
        raise LimitError(f"hook and agent are of different versions: the hook speaks {question.v}, the agent 1")
    return question
