"""The journal: what it contains after a kill at any moment, cut at any byte, and in other formats."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from random import Random

import pytest

from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload import journal
from vrampack.agent.limits.preload.errors import JournalLockedError
from vrampack.agent.limits.preload.journal import HEAD, RECORD, Journal, JournalEntry
from vrampack.agent.limits.preload.usage_ledger import ProcessKey

OWNER = CgroupOwner("0c5a0f7e-2f4e-4d3e-9a55-7b8f14c1a001", "4f1e" * 16)
UUID = "GPU-8f6d1c3a-94b5-4d0c-9b39-5d1f7e1c2b3a"
ROOT = Path(__file__).parents[4]
BOOT = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "books"


def opened(path: Path, boot_id: str = BOOT) -> Journal:
    return Journal(path, boot_id=boot_id)


def entries(path: Path) -> list[JournalEntry]:
    """As the next agent finds them."""
    book = opened(path)
    book.close()
    return sorted(book.entries, key=lambda each: (each.process, each.uuid))


def an_entry(pid: int, held_bytes: int, uuid: str = UUID) -> JournalEntry:
    return JournalEntry(ProcessKey(pid, 1000 + pid), OWNER, uuid, held_bytes)


def write(book: Journal, *what: JournalEntry) -> bool:
    return all(book.write_holding(each.process, each.owner, each.uuid, each.held_bytes) for each in what)


def test_a_reopened_journal_has_the_last_written_entries(path: Path) -> None:
    book = opened(path)
    assert book.entries == ()
    assert write(book, an_entry(1, 100), an_entry(2, 200), an_entry(2, 7, "GPU-1"), an_entry(1, 150), an_entry(2, 0))
    book.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert entries(path) == [an_entry(1, 150), an_entry(2, 7, "GPU-1")]


def test_a_freed_record_is_reused(path: Path) -> None:
    book = opened(path)
    size = path.stat().st_size
    for pid in range(1, 5 * journal.FIRST_RECORDS):
        assert write(book, an_entry(pid, 1), an_entry(pid, 0))
    book.close()
    assert path.stat().st_size == size
    assert entries(path) == []


def test_a_journal_grows_and_keeps_its_entries(path: Path) -> None:
    book = opened(path)
    many = [an_entry(pid, pid) for pid in range(1, 3 * journal.FIRST_RECORDS)]
    assert write(book, *many)
    assert write(book, an_entry(5, 55))
    book.close()
    many[4] = an_entry(5, 55)
    assert entries(path) == many


def test_journal_agrees_with_a_dictionary_after_random_writes_and_restarts(path: Path) -> None:
    random, model = Random(7), dict[tuple[ProcessKey, str], JournalEntry]()
    for _ in range(20):
        book = opened(path)
        assert {(each.process, each.uuid): each for each in book.entries} == model
        for _ in range(200):
            entry = an_entry(random.randint(1, 400), random.choice([0, 1, 1 << 40]), random.choice([UUID, "GPU-1"]))
            assert write(book, entry)
            model[entry.process, entry.uuid] = entry
        model = {key: each for key, each in model.items() if each.held_bytes}
        book.close()


def test_a_journal_cut_at_any_byte_keeps_whole_records_and_logs_the_rest(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    book = opened(path)
    written = [an_entry(1, 100), an_entry(2, 200), an_entry(3, 300)]
    write(book, *written)
    book.close()
    content = path.read_bytes()[: HEAD.size + 4 * RECORD.size]
    cut = tmp_path / "cut"
    for size in range(len(content) + 1):
        cut.write_bytes(content[:size])
        caplog.clear()
        whole = max(0, (size - HEAD.size) // RECORD.size)
        assert entries(cut) == written[:whole]
        is_whole = size == 0 or (size >= HEAD.size and (size - HEAD.size) % RECORD.size == 0)
        assert (not caplog.records) == is_whole, size
        assert entries(cut) == written[:whole]  # and the file was repaired


def test_a_corrupt_byte_loses_only_its_own_record(path: Path) -> None:
    """The held figure is not checked: one write stores it, and a process that holds memory reports it again."""
    book = opened(path)
    write(book, an_entry(1, 100), an_entry(2, 200))
    book.close()
    content = path.read_bytes()
    for at in range(HEAD.size + 8, HEAD.size + 240):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :])
        assert entries(path) == [an_entry(2, 200)], at


FOREIGN = {
    "another format": (HEAD.pack(b"vrambook", 2, 256, BOOT.encode()), "format 2"),
    "other records": (HEAD.pack(b"vrambook", 1, 128, BOOT.encode()), "records of 128 bytes"),
    "another boot": (HEAD.pack(b"vrambook", 1, 256, b"x"), "of another boot"),
    "somebody else's": (b"#!/bin/sh\n" * 100, "not a file of ours"),
}


@pytest.mark.parametrize(("head", "why"), FOREIGN.values(), ids=FOREIGN)
def test_a_file_of_another_kind_is_replaced_and_logged(
    path: Path, head: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    book = opened(path)
    write(book, an_entry(1, 100))
    book.close()
    path.write_bytes(head + path.read_bytes()[len(head) :])
    assert entries(path) == []
    assert why in caplog.text
    caplog.clear()
    assert entries(path) == []
    assert not caplog.records


def test_journal_cannot_be_opened_by_two_agents(path: Path) -> None:
    book = opened(path)
    with pytest.raises(JournalLockedError):
        opened(path)
    book.close()
    opened(path).close()


def test_card_name_that_does_not_fit_is_not_recorded(path: Path) -> None:
    book = opened(path)
    assert not write(book, an_entry(1, 100, "GPU-" + "x" * 200))
    assert write(book, an_entry(1, 0, "GPU-" + "x" * 200))
    book.close()
    assert entries(path) == []


def test_a_full_file_system_refuses_new_entries_and_keeps_the_old(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    book = opened(path)
    full = [an_entry(pid, 1) for pid in range(1, journal.FIRST_RECORDS + 1)]
    assert write(book, *full)

    def no_room(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    assert not write(book, an_entry(9999, 1))
    assert write(book, an_entry(1, 5))
    assert "journal not grown" in caplog.text
    book.close()
    monkeypatch.undo()
    assert entries(path) == [an_entry(1, 5), *full[1:]]


def test_a_journal_that_could_not_be_mapped_can_be_opened_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock goes with it, or this agent would wait for itself."""

    def no_memory(*_: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr("vrampack.agent.limits.preload.journal.mmap.mmap", no_memory)
        with pytest.raises(OSError, match="Cannot allocate memory"):
            opened(path)
    opened(path).close()


WRITER = """
import sys
from pathlib import Path
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload.journal import Journal
from vrampack.agent.limits.preload.usage_ledger import ProcessKey
book = Journal(Path(sys.argv[1]), boot_id=sys.argv[2])
print("begun", flush=True)
at = 0
while True:
    at += 1
    book.write_holding(ProcessKey(1 + at % 600, at % 600), CgroupOwner("uid", "c" * 64), "GPU-0", at << 20)
    book.write_holding(ProcessKey(1 + at % 600, at % 600), CgroupOwner("uid", "c" * 64), "GPU-0", (at % 3) << 20)
    print(at, flush=True)
"""


async def test_a_writer_that_is_killed_leaves_whole_records(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for seed in range(8):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WRITER, str(path), BOOT), stdout=PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"begun\n"
        for _ in range(Random(seed).randint(1, 900)):
            await process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        for each in entries(path):
            assert each.owner == CgroupOwner("uid", "c" * 64)
            assert each.process.pid == each.process.started_ticks + 1
            assert each.held_bytes % (1 << 20) == 0
    assert not caplog.records
