"""One file of fixed-size records: what each process holds, for the next agent. It survives a kill -9.

    head    256 bytes: magic, format, size of a record, boot id
    record  256 bytes: held bytes (0: the record is free), pid, checksum of the rest, start of the process, pod, container, card

It is mapped into memory, so the kernel has a figure as soon as it is stored, and storing it is one aligned
64-bit move that no kill can tear. A new record is written whole while it still counts as free. So a torn record can
only come from another program that cut or wrote the file: such records are logged and dropped, and so is a file of another format
or of another boot. It is locked while it is open, so two agents never write one file.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload.errors import JournalLockedError
from vrampack.agent.limits.preload.usage_ledger import ProcessKey

log = logging.getLogger(__name__)

MAGIC = b"vrambook"
FORMAT = 1
HEAD = struct.Struct("<8sII40s200x")
RECORD = struct.Struct("<QIIQ40s64s112s16x")
IDENTITY = struct.Struct("<Q40s64s112s")
"""What the checksum covers, with the pid as its start value."""
FIRST_RECORDS = 255
"""64 KiB with the head: more processes than most nodes have on their cards."""
_WORD = 8


@dataclass(frozen=True, slots=True)
class JournalEntry:
    process: ProcessKey
    owner: CgroupOwner
    uuid: str
    held_bytes: int


class Journal:
    """An open file. `entries` are its records when it was opened."""

    def __init__(self, path: Path, *, boot_id: str) -> None:
        """Open or create it. Raises `JournalLockedError` while another agent has it, `OSError` when there can be no such file."""
        self._path = path
        self._boot_id = boot_id.encode()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._slots: dict[tuple[ProcessKey, str], int] = {}
        self._free: list[int] = []
        try:
            self._lock()
            found = self._read()
            self._allocate(max(FIRST_RECORDS, len(found)))
            self._map()
        except BaseException:
            os.close(self._file)
            raise
        self._adopt_entries(found)
        taken = set(self._slots.values())
        self.entries = tuple(entry for slot, entry in enumerate(found) if entry is not None and slot in taken)

    def write_holding(self, process: ProcessKey, owner: CgroupOwner, uuid: str, held_bytes: int) -> bool:
        """Store a holding; False when there is no room, and then the file is unchanged."""
        key = process, uuid
        slot = self._slots.get(key)
        if not held_bytes:
            if slot is not None:
                self._words[slot * RECORD.size // _WORD] = 0
                self._free.append(self._slots.pop(key))
            return True
        if slot is None:
            identity = _pack_record(process, owner, uuid)
            if identity is None or not (self._free or self._grow()):
                return False
            slot = self._slots[key] = self._free.pop()
            self._bytes[slot * RECORD.size : (slot + 1) * RECORD.size] = identity
        self._words[slot * RECORD.size // _WORD] = held_bytes
        return True

    def close(self) -> None:
        """Release it for the next agent; its content stays."""
        self._unmap()
        os.close(self._file)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalLockedError(f"{self._path} belongs to another agent") from error

    def _read(self) -> list[JournalEntry | None]:
        """The records by position; None for one that is free or torn."""
        content = b"".join(_read_chunks(self._file))
        if not content:
            return []
        problem = self._find_header_problem(content[: HEAD.size])
        if problem:
            log.warning("journal reset path=%s reason=%s", self._path, problem)
            return []
        found: list[JournalEntry | None] = []
        torn = int((len(content) - HEAD.size) % RECORD.size > 0)
        for at in range(HEAD.size, len(content) - RECORD.size + 1, RECORD.size):
            record = content[at : at + RECORD.size]
            entry = _unpack_record(record)
            torn += entry is None and record[:_WORD] != bytes(_WORD)
            found.append(entry)
        if torn:
            log.warning("journal records dropped path=%s records=%s", self._path, torn)
        return found

    def _find_header_problem(self, head: bytes) -> str:
        if len(head) < HEAD.size:
            return "no whole head"
        magic, version, size, boot_id = HEAD.unpack(head)
        if magic != MAGIC:
            return "not a file of ours"
        if (version, size) != (FORMAT, RECORD.size):
            return f"format {version} with records of {size} bytes, this agent writes {FORMAT} with {RECORD.size}"
        return "" if boot_id.rstrip(b"\0") == self._boot_id else "of another boot"

    def _adopt_entries(self, found: list[JournalEntry | None]) -> None:
        """Free all other records and write the head: from here on the file is ours and contains `found`."""
        for slot in range(len(self._words) * _WORD // RECORD.size):
            entry = found[slot] if slot < len(found) else None
            if entry is None or (entry.process, entry.uuid) in self._slots:
                self._words[slot * RECORD.size // _WORD] = 0
                self._free.append(slot)
            else:
                self._slots[entry.process, entry.uuid] = slot
        self._free.reverse()
        self._mapped[: HEAD.size] = HEAD.pack(MAGIC, FORMAT, RECORD.size, self._boot_id)

    def _grow(self) -> bool:
        have = len(self._words) * _WORD // RECORD.size
        try:
            self._allocate(2 * have)
        except OSError as error:
            log.error("journal not grown path=%s error=%s", self._path, error)  # noqa: TRY400 - a full file system, no fault
            return False
        self._unmap()
        self._map()
        self._free.extend(range(2 * have - 1, have - 1, -1))
        return True

    def _allocate(self, records: int) -> None:
        """Allocate real blocks, not a hole: a store into a hole of a full file system kills the process."""
        size = HEAD.size + records * RECORD.size
        os.posix_fallocate(self._file, 0, size)
        os.ftruncate(self._file, size)

    def _map(self) -> None:
        self._mapped = mmap.mmap(self._file, 0)
        self._bytes = memoryview(self._mapped)[HEAD.size :]
        self._words = self._bytes.cast("Q")

    def _unmap(self) -> None:
        self._words.release()
        self._bytes.release()
        self._mapped.close()


def _read_chunks(file: int) -> Iterator[bytes]:
    at = 0
    while piece := os.pread(file, 1 << 20, at):
        at += len(piece)
        yield piece


def _pack_record(process: ProcessKey, owner: CgroupOwner, uuid: str) -> bytes | None:
    """The bytes of a record, still marked free; None for names that do not fit into one."""
    names = owner.pod_uid.encode(), owner.container_id.encode(), uuid.encode()
    if any(len(name) > room for name, room in zip(names, (40, 64, 112), strict=True)):
        return None
    check = zlib.crc32(IDENTITY.pack(process.started_ticks, *names), process.pid)
    return RECORD.pack(0, process.pid, check, process.started_ticks, *names)


def _unpack_record(record: bytes) -> JournalEntry | None:
    held_bytes, pid, check, started_ticks, *names = RECORD.unpack(record)
    if not held_bytes or zlib.crc32(IDENTITY.pack(started_ticks, *names), pid) != check:
        return None
    pod_uid, container_id, uuid = (name.rstrip(b"\0").decode() for name in names)
    return JournalEntry(ProcessKey(pid, started_ticks), CgroupOwner(pod_uid, container_id), uuid, held_bytes)
