"""A simulated kernel module: the files of /proc/cgpu_km in memory, with the refusals that `docs/kmod.md` promises.

Its usage is what a test sets with `set_usage`: there is no driver beneath it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from vrampack.agent.limits.kmod.proc_client import KmodClient

MIB = 1 << 20


@dataclass
class SimulatedKmodCard:
    limit: int = 0
    used: int = 0
    peak: int = 0
    refused: int = 0


@dataclass
class SimulatedBudget:
    number: int
    identity: str
    weight: int = 1
    files: int = 0
    is_removed: bool = False
    is_deny: bool = False
    cards: dict[int, SimulatedKmodCard] = field(default_factory=dict)
    processes: dict[tuple[int, int], int] = field(default_factory=dict)
    """Bytes by minor and pid."""


class SimulatedKmod:
    """`Files` of the door. `is_loaded` and what stands in `state` may be changed at any time."""

    def __init__(self, driver: str = "580.95.05") -> None:
        self.is_loaded = True
        self.is_unreadable = False
        """Except for its version: the reader has no CAP_SYS_ADMIN."""
        self.is_forbidden = False
        """By a profile of the node: not even opened."""
        self.load(driver)
        self.commands: list[str] = []

    def load(self, driver: str = "580.95.05") -> None:
        """As insmod does it: nothing is known."""
        self.driver = driver
        self.is_attached = True
        self.uvm = "guarded"
        self.instances: dict[str, SimulatedBudget] = {}
        self.most: dict[int, int] = {}
        self._numbers = count(1)

    @property
    def open_nodes(self) -> KmodClient:
        return KmodClient(self)

    def set_usage(self, name: str, minor: int, mib: int, *, pid: int = 812, refused: int = 0) -> None:
        """A process of this instance has a file open, and uses this much memory of that card."""
        found = self.instances[name]
        card = found.cards[minor]
        found.files = 1
        found.processes[minor, pid] = mib * MIB
        card.used = sum(held for (of, _), held in found.processes.items() if of == minor)
        card.peak, card.refused = max(card.peak, card.used), card.refused + refused

    def end_budget(self, name: str) -> None:
        """All its processes."""
        found = self.instances[name]
        found.files = 0
        found.processes.clear()
        for card in found.cards.values():
            card.used = 0

    def limits(self) -> dict[str, dict[int, int]]:
        """MiB by name and minor."""
        return {
            name: {minor: card.limit // MIB for minor, card in each.cards.items() if card.limit}
            for name, each in self.instances.items()
            if not each.is_removed
        }

    def read_file(self, file_name: str) -> str:
        self._check_loaded(file_name)
        if file_name == "version":
            return "0.1.0\n"
        if self.is_unreadable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file_name)
        if file_name == "state":
            driver = f"driver: {self.driver}\nlayout: two devices\n" if self.is_attached else ""
            return (
                f"attached: {'yes' if self.is_attached else 'no'}\n{driver}"
                f"uvm: {self.uvm}\ncards: unwatched\ninstances: {len(self.instances)}\n"
                f"files: {sum(each.files for each in self.instances.values())}\n"
            )
        if file_name == "inst_ctl":
            return "".join(f"{line}\n" for name, each in self.instances.items() for line in _lines(name, each))
        return f"{self.most[self._minor(file_name, 'max_inst')]}\n"

    def _check_loaded(self, node: str) -> None:
        if not self.is_loaded:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), node)

    def check_writable(self, file_name: str) -> None:
        self._check_loaded(file_name)
        if self.is_forbidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file_name)

    def write_file(self, file_name: str, text: str) -> None:
        self.check_writable(file_name)
        words = text.split()
        if file_name != "inst_ctl":
            self._write_below(file_name, int(text))
            return
        self.commands.append(text)
        if words[0] == "add":
            self._add(words[1:])
        elif words[0] == "deny":
            self._add([*words[1:3], *(f"{minor}=0" for minor in words[3:])], is_deny=True)
        elif words[0] == "remove":
            self._remove(words[1])
        elif words[0] == "cards":
            for minor in map(int, words[1:]):
                self.most.setdefault(minor, 16)
        elif words[0] in {"attach", "detach"} and len(words) == 1:
            self.is_attached = words[0] == "attach"
        else:
            raise _refusal(errno.EINVAL)

    def _add(self, words: list[str], *, is_deny: bool = False) -> None:
        name, identity, *rest = words
        if not self.is_attached:
            raise _refusal(errno.ENODEV)
        if self.uvm == "unguarded":
            raise _refusal(errno.EIO)
        if any(each.identity == identity and of != name for of, each in self.instances.items()):
            raise _refusal(errno.EEXIST)
        if identity == "pidns=404":
            raise _refusal(errno.ESRCH)
        cards = {int(minor): int(size) for minor, size in (word.split("=") for word in rest if word[0].isdecimal())}
        if not cards:
            raise _refusal(errno.EINVAL)
        if not is_deny:
            self._check_room(name, cards)
        found = self.instances.setdefault(name, SimulatedBudget(next(self._numbers), identity))
        found.identity, found.is_deny = identity, is_deny
        found.weight = next((int(word.partition("=")[2]) for word in rest if word.startswith("weight=")), 1)
        for minor in {*found.cards, *cards}:
            found.cards.setdefault(minor, SimulatedKmodCard()).limit = cards.get(minor, 0)

    def _check_room(self, name: str, cards: dict[int, int]) -> None:
        for minor in cards:
            here = [
                of for of, each in self.instances.items() if minor in each.cards and of != name and not each.is_deny
            ]
            if len(here) >= self.most.setdefault(minor, 16):
                raise _refusal(errno.ENOSPC)

    def _remove(self, name: str) -> None:
        if name not in self.instances:
            raise _refusal(errno.ENOENT)
        if self.instances[name].files:
            self.instances[name].is_removed = True
        else:
            del self.instances[name]

    def _write_below(self, node: str, number: int) -> None:
        if node.endswith("/max_inst"):
            self.most[self._minor(node, "max_inst")] = number
            return
        minor, name, last = node.split("/")
        if last != "memsize" or name not in self.instances:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), node)
        self.instances[name].cards[int(minor)].limit = number

    def _minor(self, node: str, last: str) -> int:
        minor = int(node.removesuffix(f"/{last}"))
        if minor not in self.most:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), node)
        return minor


def _lines(name: str, each: SimulatedBudget) -> list[str]:
    more = f"{' deny=1' if each.is_deny else ''}{' removed=1' if each.is_removed else ''}"
    return [
        f"instance {name} id={each.number} {each.identity} weight={each.weight} files={each.files}{more}",
        *(
            f"card {name} {minor} limit={card.limit} used={card.used} peak={card.peak} refused={card.refused}"
            for minor, card in sorted(each.cards.items())
        ),
        *(f"process {name} {minor} pid={pid} used={held}" for (minor, pid), held in sorted(each.processes.items())),
    ]


def _refusal(number: int) -> OSError:
    """The error as from write(2): without a file's name."""
    return OSError(number, os.strerror(number))


def write_proc(folder: Path, *, capabilities: int = 1 << 21, pid_namespace: str = "pid:[4026531836]") -> Path:
    """`folder / proc`, as a process with these sees /proc."""
    (folder / "proc" / "self" / "ns").mkdir(parents=True)
    (folder / "proc" / "self" / "status").write_text(f"Name:\tagent\nCapEff:\t{capabilities:016x}\n")
    (folder / "proc" / "self" / "ns" / "pid").symlink_to(pid_namespace)
    return folder / "proc"


def write_process(proc: Path, pid: int, numbers: tuple[int, ...]) -> None:
    """With these numbers in the namespaces from the node's inwards."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "status").write_text("Name:\tp\nNSpid:\t" + "\t".join(map(str, numbers)) + "\n")
