"""A machine with the simulated driver and the module in it, and containers in its cgroups.

    world.limited("a", {0: 4301}).run("app", "3193")

A `BudgetPlace` has the interface of `tests/shim/preload/container.py`, so that what a program prints can be compared between library and module.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pytest

from tests.fakes.driver.driver import MIB, FakeDriverState, parse_state
from tests.machine.machine import VirtualMachine
from tests.machine.program import GuestProgram, GuestStart
from tests.support.polling import wait_until
from tests.support.program_result import ProgramResult

NODES = "/proc/cgpu_km"
CONTROL = f"{NODES}/inst_ctl"
CGROUPS = "/sys/fs/cgroup"
DRIVER = "/proc/driver/nvidia"
MODULE = "/lib/vrampack.ko"
MAJOR, CONTROL_MINOR = 195, 255
CARDS = ",".join(f"GPU-{minor}1111111-2222-3333-4444-555555555555:16130:{minor}" for minor in range(3))
NEW, OLD, UNKNOWN = "new", "old", "unknown"
"""Folders of /lib with a driver's modules: two devices, one device, and an unknown version."""


@dataclass(frozen=True, slots=True)
class BudgetPlace:
    """Where programs start: a cgroup, and further settings."""

    machine: VirtualMachine
    start: GuestStart

    def run(self, program: str, *arguments: str) -> ProgramResult:
        return self.machine.run(program, *arguments, start=self.start)

    @contextmanager
    def running(self, program: str, *arguments: str) -> Iterator[GuestProgram]:
        with self.machine.running(program, *arguments, start=self.start) as started:
            yield started

    def inside(self, **changes: object) -> BudgetPlace:
        """The same place with these changes."""
        return BudgetPlace(self.machine, replace(self.start, **changes))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class KmodCard:
    """What the module says of one instance on one card."""

    limit: int
    used: int
    peak: int
    refused: int


@dataclass(frozen=True, slots=True)
class ListedKmodBudget:
    fields: Mapping[str, str]
    cards: Mapping[int, KmodCard]
    processes: Mapping[tuple[int, int], int]
    """Bytes by card and pid."""


@dataclass(frozen=True, slots=True)
class KmodWorld:
    """Names of instances are the paths of their cgroups, with dots for slashes."""

    machine: VirtualMachine

    def load(self) -> None:
        """Load the newer driver and the module, if they are not there yet."""
        if "vrampack" in self.loaded():
            return
        self.unload()
        self.load_driver(NEW, f"cards={CARDS}")
        self.load_uvm()
        self.load_shim()

    def load_driver(self, which: str = NEW, *parameters: str) -> None:
        self.machine.insmod(f"/lib/{which}/nvidia.ko", *parameters)
        for minor in (*range(3), CONTROL_MINOR):
            name = "nvidiactl" if minor == CONTROL_MINOR else f"nvidia{minor}"
            self._make_node(f"/dev/{name}", MAJOR, minor)

    def load_uvm(self, which: str = NEW) -> None:
        self.machine.insmod(f"/lib/{which}/nvidia-uvm.ko")
        self._make_node("/dev/nvidia-uvm", self._major_of("nvidia-uvm"), 0)

    def load_shim(self, *parameters: str) -> None:
        self.machine.insmod(MODULE, *parameters)

    def unload_shim(self) -> None:
        """An open that began while the module was attached holds it until the driver's own open returns."""

        def is_unloaded() -> bool:
            try:
                self.machine.rmmod("vrampack")
            except BlockingIOError:
                return False
            return True

        wait_until(is_unloaded, what="the module is no longer held by an open")

    def unload(self) -> None:
        """Unloads what is there, in order; first no container may be limited any more."""
        loaded = self.loaded()
        if "vrampack" in loaded:
            self.forget()
            self.command("detach")
            self.unload_shim()
        for name in ("nvidia_uvm", "nvidia"):
            if name in loaded:
                self.machine.rmmod(name)

    def loaded(self) -> set[str]:
        return {line.split()[0] for line in self.machine.read("/proc/modules").splitlines()}

    def forget(self) -> None:
        """Remove every instance that the module has a name for."""
        for name, instance in self.instances().items():
            if "removed" not in instance.fields:
                self.command(f"remove {name}")

    def limited(self, cgroup: str, limits_mib: Mapping[int, int], **fields: int) -> BudgetPlace:
        """A cgroup with a limit."""
        place = self.unlimited(cgroup)
        self.add(cgroup, {minor: mib * MIB for minor, mib in limits_mib.items()}, **fields)
        return place

    def unlimited(self, cgroup: str) -> BudgetPlace:
        """A cgroup, made if it is not there."""
        path = CGROUPS
        for part in cgroup.split("/"):
            path = f"{path}/{part}"
            with suppress(FileExistsError):
                self.machine.mkdir(path)
        return BudgetPlace(self.machine, GuestStart(cgroup=cgroup))

    def host(self) -> BudgetPlace:
        """A container without a limit."""
        return BudgetPlace(self.machine, GuestStart())

    def add(self, cgroup: str, limits: Mapping[int, int], **fields: int) -> None:
        """Limits in bytes."""
        cards = [f"{minor}={size}" for minor, size in limits.items()]
        rest = [f"{name}={value}" for name, value in fields.items()]
        identity = f"cgroup={self.machine.inode(f'{CGROUPS}/{cgroup}')}"
        self.command(" ".join(["add", name_of(cgroup), identity, *cards, *rest]))

    def command(self, text: str, *, start: GuestStart | None = None) -> None:
        self.machine.write(CONTROL, f"{text}\n", start=start)

    def node(self, path: str, *, start: GuestStart | None = None) -> str:
        return self.machine.read(f"{NODES}/{path}", start=start)

    def state(self) -> dict[str, str]:
        return dict(line.split(": ", 1) for line in self.node("state").splitlines())

    def driver(self) -> FakeDriverState:
        return parse_state(self.machine.read(f"{DRIVER}/fake"))

    def new_peak(self) -> None:
        """The driver's own peak starts again from what is used."""
        self.machine.write(f"{DRIVER}/fake", "peak\n")

    def tables(self) -> set[tuple[str, str]]:
        """Of each open file of the driver: the device, and whose operations table it has."""
        rows = (line.split() for line in self.machine.read(f"{DRIVER}/files").splitlines())
        return {(row[0], row[2]) for row in rows}

    def instances(self) -> dict[str, ListedKmodBudget]:
        found: dict[str, ListedKmodBudget] = {}
        for line in self.machine.read(CONTROL).splitlines():
            kind, name, *rest = line.split(" ")
            fields = dict(field.split("=") for field in rest if "=" in field)
            if kind == "instance":
                found[name] = ListedKmodBudget(fields, {}, {})
                continue
            minor = int(rest[0])
            cards, processes = dict(found[name].cards), dict(found[name].processes)
            if kind == "card":
                cards[minor] = KmodCard(**{key: int(value) for key, value in fields.items()})
            else:
                processes[minor, int(fields["pid"])] = int(fields["used"])
            found[name] = replace(found[name], cards=cards, processes=processes)
        return found

    def card(self, cgroup: str, minor: int = 0) -> KmodCard:
        return self.instances()[name_of(cgroup)].cards[minor]

    def pids(self, cgroup: str) -> list[int]:
        return [int(line) for line in self.machine.read(f"{CGROUPS}/{cgroup}/cgroup.procs").split()]

    def kill(self, pid: int) -> None:
        self.machine.call("kill", str(pid))

    def _make_node(self, path: str, major: int, minor: int) -> None:
        with suppress(FileNotFoundError):
            self.machine.call("unlink", path)
        self.machine.mknod(path, major, minor)

    def _major_of(self, name: str) -> int:
        rows = (line.split() for line in self.machine.read("/proc/devices").splitlines())
        return next(int(row[0]) for row in rows if row[1:] == [name])


def name_of(cgroup: str) -> str:
    return cgroup.replace("/", ".")


@contextmanager
def fails_with(number: int) -> Iterator[None]:
    with pytest.raises(OSError) as failed:  # noqa: PT011 - the number says it
        yield
    seen = failed.value.errno or 0
    assert seen == number, f"{errno.errorcode.get(seen, seen)} instead of {errno.errorcode[number]}"
