"""Starts the fake driver on a folder and removes it again, even if it crashed or was killed."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fakes.nvml.machine import FakeNvmlMachine

MNT_DETACH = 2
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FakeCard:
    """A card as it is described to the driver. The default is the V100 of the founding scenario."""

    uuid: str = "GPU-11111111-2222-3333-4444-555555555555"
    memory_mib: int = 16130
    minor: int = 0


@dataclass(frozen=True, slots=True)
class FakeCardState:
    """What the driver itself has allocated on one card, for all processes."""

    uuid: str
    minor: int
    total: int
    used: int
    peak: int
    by_process: dict[int, int]


@dataclass(frozen=True, slots=True)
class FakeDriverState:
    cards: tuple[FakeCardState, ...]
    files: int
    clients: int
    objects: int
    refused: int
    calls: int

    def card(self, uuid: str) -> FakeCardState:
        return next(card for card in self.cards if card.uuid == uuid)


class FakeDriver:
    """One driver for one machine; a context manager. Creates `folder` if it is missing."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        *,
        cards: Sequence[FakeCard] = (FakeCard(),),
        version: str = "580.95.05",
        reserved_mib: int | None = None,
    ) -> None:
        self.folder = folder
        self.cards = tuple(cards)
        self.version = version
        self._program = program
        self._reserved_mib = reserved_mib
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def control(self) -> Path:
        return self.folder / "nvidiactl"

    @property
    def uvm(self) -> Path:
        return self.folder / "nvidia-uvm"

    @property
    def branch(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def pid(self) -> int:
        return self._running().pid

    def card_file(self, card: FakeCard) -> Path:
        return self.folder / f"nvidia{card.minor}"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(self._program), str(self.folder), self.version]
        command += [f"{card.uuid}:{card.memory_mib}:{card.minor}" for card in self.cards]
        if self._reserved_mib is not None:
            command += ["--reserved", str(self._reserved_mib)]
        # Its standard input is ours: it ends when this process does, even by kill -9.
        self._process = subprocess.Popen(
            [*command, "--while-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "serving\n":
            code = self._process.wait(timeout=10)
            raise RuntimeError(f"the fake driver ended with {code}, see its message above")

    def stop(self) -> None:
        """End it and leave a plain folder, even if it was killed before. The exit code is not checked here."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        _unmount(self.folder)

    def returncode(self) -> int | None:
        """None while it serves. Anything but 0 is a crash, or a sanitizer's complaint."""
        return self._running().poll()

    def state(self) -> FakeDriverState:
        return parse_state((self.folder / "state").read_text())

    def refuse(self, *, status: int, times: int = 1) -> None:
        """Make the next `times` allocations of memory fail with that status, however much is free."""
        (self.folder / "refuse").write_text(f"{status:x} {times}\n")

    def show_to(self, machine: FakeNvmlMachine) -> None:
        """NVML's stub reports the processes that hold memory here, in whole MiB."""
        machine.clear_processes()
        for card in self.state().cards:
            for pid, held in card.by_process.items():
                machine.add_process(card.uuid, pid, held // MIB)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the fake driver was not started")
        return self._process


def parse_state(text: str) -> FakeDriverState:
    """The text of the file `state`: `card UUID MINOR TOTAL USED PEAK`, `process UUID PID BYTES`, `counts NAME=N...`."""
    rows = [line.split() for line in text.splitlines()]
    held: dict[str, dict[int, int]] = {}
    for row in rows:
        if row[0] == "process":
            held.setdefault(row[1], {})[int(row[2])] = int(row[3])
    cards = tuple(
        FakeCardState(row[1], int(row[2]), int(row[3]), int(row[4]), int(row[5]), held.get(row[1], {}))
        for row in rows
        if row[0] == "card"
    )
    counts = {
        name: int(value) for row in rows if row[0] == "counts" for name, value in (word.split("=") for word in row[1:])
    }
    return FakeDriverState(cards, **counts)


def _unmount(folder: Path) -> None:
    """EINVAL is fine: it is no longer a mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.umount2(os.fsencode(folder), MNT_DETACH)
