"""An agent that the test controls: it keeps one container's accounts correctly, and is away, mute, old or generous on demand.

It serves in a thread of its own, so that a test can wait for programs meanwhile.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from tests.shim.preload.packets import PacketAnswer, PacketKind, PacketQuestion, PacketVerdict, parse_packet

DRIVER_VERSION = "580.95.05"
BACKLOG = 512
PACKET_SIZE = 4096


@dataclass
class ScriptedAgent:
    """One container with one card. What is set here holds from the next question on."""

    path: Path
    limit_bytes: int
    driver_version: str = DRIVER_VERSION
    is_unlimited: bool = False
    lost_answers: int = 0
    """So many of the next questions are counted and not answered."""
    old_hellos: int = 0
    """So many of the next connections meet an agent of another protocol version."""
    peak_bytes: int = 0
    asked: list[PacketQuestion] = field(default_factory=list)
    _held: dict[int, dict[int, int]] = field(default_factory=dict)
    """Bytes by minor by pid. Survives a restart, as the journal of a real agent does."""
    _speaks: dict[int, socket.socket] = field(default_factory=dict)
    """The newest connection of each pid."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def used_bytes(self) -> int:
        with self._lock:
            return self._used()

    @property
    def held_by_pid(self) -> dict[int, int]:
        with self._lock:
            return {pid: sum(held.values()) for pid, held in self._held.items()}

    @contextmanager
    def serving(self) -> Iterator[None]:
        """It answers inside the block; afterwards it is gone, as if killed: no client is told, and the accounts stay."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.path.unlink(missing_ok=True)
        listener.bind(str(self.path))
        self.path.chmod(0o666)
        listener.listen(BACKLOG)
        heard, told = socket.socketpair()
        thread = threading.Thread(target=self._serve, args=(listener, heard))
        thread.start()
        try:
            yield
        finally:
            told.close()
            thread.join()

    def _serve(self, listener: socket.socket, end: socket.socket) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(listener, selectors.EVENT_READ)
            waiting.register(end, selectors.EVENT_READ)
            while True:
                ready = [cast("socket.socket", key.fileobj) for key, _ in waiting.select()]
                if end in ready:
                    break
                for speaker in ready:
                    if speaker is listener:
                        waiting.register(listener.accept()[0], selectors.EVENT_READ)
                    elif not self._converse(speaker):
                        waiting.unregister(speaker)
                        self._hang_up(speaker)
            for key in list(waiting.get_map().values()):
                cast("socket.socket", key.fileobj).close()
            self._speaks.clear()

    def _converse(self, speaker: socket.socket) -> bool:
        try:
            packet = speaker.recv(PACKET_SIZE)
            if not packet:
                return False
            question = parse_packet(packet)
            with self._lock:
                answer = self._answer(speaker, question)
            if answer:
                speaker.send(answer.packed(question.sequence))
        except (ConnectionError, BrokenPipeError):
            return False
        return not (answer and answer.verdict is PacketVerdict.NOT_UNDERSTOOD)

    def _answer(self, speaker: socket.socket, question: PacketQuestion) -> PacketAnswer | None:
        self.asked.append(question)
        pid = _pid_of(speaker)
        answer = self._decided(pid, speaker, question)
        self.peak_bytes = max(self.peak_bytes, self._used())
        if question.kind is PacketKind.GIVE:
            return None
        if self.lost_answers and question.kind is not PacketKind.HELLO:
            self.lost_answers -= 1
            return None
        version = self.driver_version if question.kind is PacketKind.HELLO else ""
        return replace(answer, limit_bytes=self.limit_bytes, used_bytes=self._used(), driver_version=version)

    def _decided(self, pid: int, speaker: socket.socket, question: PacketQuestion) -> PacketAnswer:
        if question.kind is PacketKind.HELLO:
            if self.old_hellos:
                self.old_hellos -= 1
                return PacketAnswer(PacketVerdict.NOT_UNDERSTOOD)
            self._speaks[pid] = speaker
            self._held[pid] = dict(question.held)
        if self.is_unlimited:
            return PacketAnswer(PacketVerdict.UNLIMITED)
        held = self._held.setdefault(pid, {})
        ((minor, wanted),) = question.held.items() if question.kind is not PacketKind.HELLO else ((0, held.get(0, 0)),)
        others = self._used() - held.get(minor, 0)
        if question.kind is PacketKind.HOLD and others + wanted > self.limit_bytes:
            return PacketAnswer(PacketVerdict.NO)
        if question.kind is not PacketKind.HELLO:
            held[minor] = wanted
        return PacketAnswer(PacketVerdict.YES)

    def _hang_up(self, speaker: socket.socket) -> None:
        pid = _pid_of(speaker)
        with self._lock:
            if self._speaks.get(pid) is speaker:
                del self._speaks[pid]
                self._held.pop(pid, None)
        speaker.close()

    def _used(self) -> int:
        return sum(sum(held.values()) for held in self._held.values())


def _pid_of(speaker: socket.socket) -> int:
    credentials = speaker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return cast("int", struct.unpack("3i", credentials)[0])
