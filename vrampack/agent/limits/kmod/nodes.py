"""The one door to /proc/cgpu_km: what the module says, typed, and its commands, with a sentence for each refusal.

    state     attached, driver, layout, uvm, files        inst_ctl  reads: instances, cards, processes
    version   of the module                                         writes: add, remove, cards, detach, attach
    N/max_inst, N/NAME/memsize                            docs/kmod.md has the syntax

Everything here blocks, mostly for microseconds: `detach` waits for opens that are under way.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from vrampack.agent.limits.kmod.errors import ModuleError
from vrampack.agent.limits.kmod.procfs import FOLDER, Files, Procfs

CONTROL = "inst_ctl"
COMMAND_BYTES = 4095
"""As much as the module takes in one write."""
NOT_LOADED = f"{FOLDER} is not there: load the kernel module, modprobe vrampack"
DETACHED = "the kernel module is detached from the driver: vrampack shim attach"
UNGUARDED = "the kernel module cannot refuse managed memory (uvm: unguarded): is it made for this driver? docs/kmod.md"
_KINDS = ("instance", "card", "process")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}")


@dataclass(frozen=True, slots=True)
class State:
    """The module as a whole."""

    version: str
    is_attached: bool
    driver_version: str
    """With `layout` empty while it is detached."""
    layout: str
    """`one device` or `two devices`: how the driver made its own."""
    uvm: str
    """`absent`: not loaded yet; `guarded`; `unguarded`: managed memory would pass."""
    files: int
    """Open files of managed processes."""

    @property
    def is_unguarded(self) -> bool:
        return self.uvm == "unguarded"


@dataclass(frozen=True, slots=True)
class CgroupId:
    """Of cgroup v2: the inode of its folder."""

    number: int

    def __str__(self) -> str:
        return f"cgroup={self.number}"


@dataclass(frozen=True, slots=True)
class PidNamespace:
    """That of this process, whose number is of the initial PID namespace."""

    pid: int

    def __str__(self) -> str:
        return f"pidns={self.pid}"


Whose: TypeAlias = CgroupId | PidNamespace


@dataclass(frozen=True, slots=True)
class CardUse:
    limit_bytes: int
    used_bytes: int
    peak_bytes: int
    refused: int


@dataclass(frozen=True, slots=True)
class ProcessUse:
    minor: int
    pid: int
    """Of the initial PID namespace."""
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Instance:
    """Whose files are limited together."""

    name: str
    number: int
    cgroup: int | None
    """None: it is a PID namespace's."""
    weight: int
    files: int
    is_removed: bool
    """No new file is bound to it; those that are open stay limited."""
    cards: Mapping[int, CardUse] = field(default_factory=dict)
    """By N of /dev/nvidiaN."""
    processes: tuple[ProcessUse, ...] = ()

    @property
    def limits(self) -> dict[int, int]:
        """Bytes by minor of the cards that it may use."""
        return {minor: card.limit_bytes for minor, card in self.cards.items() if card.limit_bytes}


class Nodes:
    """What the module offers. Everything but `state` raises `ModuleError`, also where the module is not there."""

    def __init__(self, files: Files | None = None) -> None:
        self._files = files or Procfs()

    def state(self) -> State | None:
        """None where the module is not loaded. Raises `ModuleError` when it cannot be read."""
        try:
            text, version = self._files.read("state"), self._files.read("version").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ModuleError(
                f"{FOLDER}/state cannot be read: {error.strerror}; it takes root with CAP_SYS_ADMIN"
            ) from error
        words = {key: value for line in text.splitlines() for key, _, value in [line.partition(": ")]}
        try:
            return State(
                version,
                words["attached"] == "yes",
                words.get("driver", ""),
                words.get("layout", ""),
                words["uvm"],
                int(words["files"]),
            )
        except (KeyError, ValueError) as error:
            raise ModuleError(_foreign("state", text)) from error

    def instances(self) -> tuple[Instance, ...]:
        """In the module's order."""
        return tuple(_instances(self._read(CONTROL)))

    def add(self, name: str, whose: Whose, limits: Mapping[int, int], *, weight: int = 1) -> None:
        """Limit the files that these processes open from now on; bytes by minor. A name that exists becomes this."""
        cards = " ".join(f"{minor}={size_bytes}" for minor, size_bytes in sorted(limits.items()))
        more = f" weight={weight}" if weight != 1 else ""
        self._command(f"add {_checked(name)} {whose} {cards}{more}")

    def remove(self, name: str) -> None:
        self._command(f"remove {_checked(name)}")

    def cards(self, minors: Iterable[int]) -> None:
        """Make folders for these cards."""
        self._command(f"cards {' '.join(map(str, sorted(minors)))}")

    def detach(self) -> None:
        """Give the driver its device back; files that are open stay limited."""
        self._command("detach")

    def attach(self) -> None:
        self._command("attach")

    def resize(self, minor: int, name: str, size_bytes: int) -> None:
        """From the next allocation on."""
        self._write(f"{minor}/{_checked(name)}/memsize", str(size_bytes))

    def most_instances(self, minor: int) -> int:
        text = self._read(f"{minor}/max_inst")
        try:
            return int(text)
        except ValueError as error:
            raise ModuleError(_foreign(f"{minor}/max_inst", text)) from error

    def allow_instances(self, minor: int, most: int) -> None:
        self._write(f"{minor}/max_inst", str(most))

    def check_writable(self) -> None:
        """Raises where a profile of the node, or somebody else's root, forbids to command."""
        try:
            self._files.try_to_open(CONTROL)
        except OSError as error:
            raise ModuleError(_sentence(CONTROL, error)) from error

    def _command(self, command: str) -> None:
        if len(command) > COMMAND_BYTES:
            raise ModuleError(f"{command[:60]}..: a command has {COMMAND_BYTES} bytes at most")
        self._write(CONTROL, command)

    def _write(self, node: str, text: str) -> None:
        try:
            self._files.write(node, text)
        except OSError as error:
            raise ModuleError(f"{text}: {_sentence(node, error)}") from error

    def _read(self, node: str) -> str:
        try:
            return self._files.read(node)
        except OSError as error:
            raise ModuleError(_sentence(node, error)) from error


_COMMON = {
    errno.EPERM: "not permitted: it takes CAP_SYS_ADMIN in the node's own user namespace, from outside of limited containers",
    errno.EACCES: "not permitted by the node's profiles (AppArmor, SELinux) or by the file's owner, which is root",
    errno.EINVAL: "refused by the module, whose log says why (dmesg); a cgroup or PID namespace of the agent's own cannot be limited",
}
_OF_COMMANDS = {
    errno.EEXIST: "cgroup= or pidns= is that of another instance, which cat inst_ctl shows: remove that first",
    errno.ENOSPC: "a card has as many instances as its max_inst allows: write up to 25 there, or end a container",
    errno.ESRCH: "pidns= names no process",
    errno.ENOENT: "no instance has this name",
    errno.ENODEV: DETACHED,
    errno.EOPNOTSUPP: "the module does not know this driver's version: install a newer vrampack module",
    errno.EIO: UNGUARDED,
    errno.EBUSY: "another program stands before the driver's device: unload that first",
}


def _sentence(node: str, error: OSError) -> str:
    known = _COMMON | (_OF_COMMANDS if node == CONTROL and error.filename is None else {})
    if error.errno == errno.ENOENT and error.errno not in known:
        return NOT_LOADED if node == CONTROL else f"{FOLDER}/{node} is not there any more"
    return f"{FOLDER}/{node}: {known.get(error.errno or 0, error.strerror)}"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ModuleError(f"{name[:140]!r} is no name for an instance: letters, digits, '.', '_' and '-', 127 at most")
    return name


def _instances(text: str) -> Iterator[Instance]:
    """One after the other, each with the lines below it."""
    found: Instance | None = None
    for line in text.splitlines():
        if line.partition(" ")[0] not in _KINDS:
            continue  # a newer module's
        try:
            made = _read_on(found, line)
        except (KeyError, ValueError, IndexError) as error:
            raise ModuleError(_foreign(CONTROL, line)) from error
        if found is not None and made.number != found.number:
            yield found
        found = made
    if found is not None:
        yield found


def _read_on(found: Instance | None, line: str) -> Instance:
    """Another instance, or the one above with what this line says of it."""
    kind, name, *words = line.split(" ")
    if kind == "instance":
        return _instance(name, dict(word.split("=", 1) for word in words))
    if found is None or found.name != name:
        raise ValueError(f"{kind} of {name} does not stand below its instance")
    return _with(found, kind, int(words[0]), dict(word.split("=", 1) for word in words[1:]))


def _instance(name: str, words: Mapping[str, str]) -> Instance:
    return Instance(
        name,
        number=int(words["id"]),
        cgroup=int(words["cgroup"]) if "cgroup" in words else None,
        weight=int(words["weight"]),
        files=int(words["files"]),
        is_removed=words.get("removed") == "1",
    )


def _with(found: Instance, kind: str, minor: int, words: Mapping[str, str]) -> Instance:
    if kind == "process":
        each = ProcessUse(minor, int(words["pid"]), int(words["used"]))
        return replace(found, processes=(*found.processes, each))
    use = CardUse(int(words["limit"]), int(words["used"]), int(words["peak"]), int(words["refused"]))
    return replace(found, cards={**found.cards, minor: use})


def _foreign(node: str, text: str) -> str:
    return f"{FOLDER}/{node} says {text[:120]!r}, which is not understood: are module and vrampack of one version?"
