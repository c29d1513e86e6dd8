"""The only access to /proc/cgpu_km: the module's reports as values, and its commands, with a sentence for each refusal.

    state     attached, driver, layout, uvm, files        inst_ctl  reads: instances, cards, processes
    version   of the module                                         writes: add, remove, cards, detach, attach
    N/max_inst, N/NAME/memsize                            docs/kmod.md has the syntax

Everything here blocks, mostly for microseconds; `detach` waits for opens that are under way.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from vrampack.agent.limits.contract import ModuleState
from vrampack.agent.limits.kmod.errors import ModuleError
from vrampack.agent.limits.kmod.proc_files import PROC_FOLDER, ModuleFiles, ProcfsModuleFiles

CONTROL_FILE = "inst_ctl"
MAX_COMMAND_BYTES = 4095
"""The most that the module accepts in one write."""
NOT_LOADED = f"{PROC_FOLDER} is not there: load the kernel module with `modprobe vrampack`"
DETACHED = "the kernel module is detached from the driver: run `vrampack limits attach`"
UNGUARDED = "the kernel module cannot refuse managed memory (uvm: unguarded): is it made for this driver? docs/kmod.md"
_KINDS = ("instance", "card", "process")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}")


@dataclass(frozen=True, slots=True)
class CgroupId:
    """A cgroup v2 by the inode of its folder."""

    number: int

    def __str__(self) -> str:
        return f"cgroup={self.number}"


@dataclass(frozen=True, slots=True)
class PidNamespace:
    """The PID namespace of this process; the pid is in the initial PID namespace."""

    pid: int

    def __str__(self) -> str:
        return f"pidns={self.pid}"


BudgetOwner: TypeAlias = CgroupId | PidNamespace


@dataclass(frozen=True, slots=True)
class BudgetCard:
    limit_bytes: int
    used_bytes: int
    peak_bytes: int
    refused: int


@dataclass(frozen=True, slots=True)
class BudgetProcess:
    minor: int
    pid: int
    """In the initial PID namespace."""
    used_bytes: int


@dataclass(frozen=True, slots=True)
class KmodBudget:
    """One budget: the files that are limited together."""

    name: str
    number: int
    cgroup: int | None
    """None: its owner is a PID namespace."""
    weight: int
    files: int
    is_removed: bool
    """Whether it takes no new files; those that are open stay limited."""
    is_deny: bool = False
    """Whether it is for the containers below its cgroup that the module was not told of."""
    cards: Mapping[int, BudgetCard] = field(default_factory=dict)
    """By N of /dev/nvidiaN."""
    processes: tuple[BudgetProcess, ...] = ()

    @property
    def limit_bytes_by_minor(self) -> dict[int, int]:
        """The limit in bytes, by minor, on each card that it may use."""
        return {minor: card.limit_bytes for minor, card in self.cards.items() if card.limit_bytes}


class KmodClient:
    """The module's interface. Every method may raise `ModuleError`; all but `read_state` do if the module is not loaded."""

    def __init__(self, files: ModuleFiles | None = None) -> None:
        self._files = files or ProcfsModuleFiles()

    def read_state(self) -> ModuleState | None:
        """The module's state; None if it is not loaded. Raises `ModuleError` when the state cannot be read."""
        try:
            text, version = self._files.read_file("state"), self._files.read_file("version").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ModuleError(
                f"{PROC_FOLDER}/state cannot be read: {error.strerror}; this needs root with CAP_SYS_ADMIN"
            ) from error
        words = {key: value for line in text.splitlines() for key, _, value in [line.partition(": ")]}
        try:
            return ModuleState(
                version,
                words["attached"] == "yes",
                words.get("driver", ""),
                words.get("layout", ""),
                words["uvm"],
                int(words["files"]),
            )
        except (KeyError, ValueError) as error:
            raise ModuleError(_describe_unknown_text("state", text)) from error

    def list_budgets(self) -> tuple[KmodBudget, ...]:
        """All budgets, in the module's order."""
        return tuple(_parse_budgets(self._read(CONTROL_FILE)))

    def add_budget(self, name: str, owner: BudgetOwner, limits: Mapping[int, int], *, weight: int = 1) -> None:
        """Limit the files that the owner's processes open from now on, in bytes by minor. Replaces a budget of this name."""
        cards = " ".join(f"{minor}={size_bytes}" for minor, size_bytes in sorted(limits.items()))
        more = f" weight={weight}" if weight != 1 else ""
        self._write_command(f"add {_check_name(name)} {owner} {cards}{more}")

    def deny_unknown(self, name: str, cgroup: CgroupId, minors: Iterable[int]) -> None:
        """Deny memory of these cards to containers below this cgroup that the module was not told of."""
        self._write_command(f"deny {_check_name(name)} {cgroup} {' '.join(map(str, sorted(minors)))}")

    def remove_budget(self, name: str) -> None:
        self._write_command(f"remove {_check_name(name)}")

    def add_cards(self, minors: Iterable[int]) -> None:
        """Create folders for these cards."""
        self._write_command(f"cards {' '.join(map(str, sorted(minors)))}")

    def detach(self) -> None:
        """Detach from the driver; files that are open stay limited."""
        self._write_command("detach")

    def attach(self) -> None:
        self._write_command("attach")

    def resize_budget(self, minor: int, name: str, size_bytes: int) -> None:
        """Change a limit, from the next allocation on."""
        self._write(f"{minor}/{_check_name(name)}/memsize", str(size_bytes))

    def read_max_budgets(self, minor: int) -> int:
        text = self._read(f"{minor}/max_inst")
        try:
            return int(text)
        except ValueError as error:
            raise ModuleError(_describe_unknown_text(f"{minor}/max_inst", text)) from error

    def set_max_budgets(self, minor: int, max_budgets: int) -> None:
        self._write(f"{minor}/max_inst", str(max_budgets))

    def check_writable(self) -> None:
        """Raises when a security profile of the node, or a root of another user namespace, forbids commands."""
        try:
            self._files.check_writable(CONTROL_FILE)
        except OSError as error:
            raise ModuleError(_explain_error(CONTROL_FILE, error)) from error

    def _write_command(self, command: str) -> None:
        if len(command) > MAX_COMMAND_BYTES:
            raise ModuleError(f"{command[:60]}..: a command has {MAX_COMMAND_BYTES} bytes at most")
        self._write(CONTROL_FILE, command)

    def _write(self, file_name: str, text: str) -> None:
        try:
            self._files.write_file(file_name, text)
        except OSError as error:
            raise ModuleError(f"{text}: {_explain_error(file_name, error)}") from error

    def _read(self, file_name: str) -> str:
        try:
            return self._files.read_file(file_name)
        except OSError as error:
            raise ModuleError(_explain_error(file_name, error)) from error


_ERRORS = {
    errno.EPERM: "not permitted: this needs CAP_SYS_ADMIN in the node's own user namespace, and no limited container has it",
    errno.EACCES: "not permitted by the node's profiles (AppArmor, SELinux) or by the file's owner, which is root",
    errno.EINVAL: "refused by the module, whose log says why (dmesg); a cgroup or PID namespace of the agent's own cannot be limited",
}
_COMMAND_ERRORS = {
    errno.EEXIST: "cgroup= or pidns= is that of another instance, which cat inst_ctl shows: remove that first",
    errno.ENOSPC: "a card has as many instances as its max_inst allows: write up to 25 there, or end a container",
    errno.ESRCH: "pidns= names no process",
    errno.ENOENT: "no instance has this name",
    errno.ENODEV: DETACHED,
    errno.EOPNOTSUPP: "the module does not know this driver's version: install a newer vrampack module",
    errno.EIO: UNGUARDED,
    errno.EBUSY: "another module has replaced the driver's device: unload that first",
}


def _explain_error(file_name: str, error: OSError) -> str:
    known = _ERRORS | (_COMMAND_ERRORS if file_name == CONTROL_FILE and error.filename is None else {})
    if error.errno == errno.ENOENT and error.errno not in known:
        return NOT_LOADED if file_name == CONTROL_FILE else f"{PROC_FOLDER}/{file_name} no longer exists"
    return f"{PROC_FOLDER}/{file_name}: {known.get(error.errno or 0, error.strerror)}"


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ModuleError(
            f"{name[:140]!r} is not a name for an instance: letters, digits, '.', '_' and '-', 127 at most"
        )
    return name


def _parse_budgets(text: str) -> Iterator[KmodBudget]:
    """Parse `inst_ctl`: each budget has the lines below it."""
    found: KmodBudget | None = None
    for line in text.splitlines():
        if line.partition(" ")[0] not in _KINDS:
            continue  # written by a newer module
        try:
            made = _parse_line(found, line)
        except (KeyError, ValueError, IndexError) as error:
            raise ModuleError(_describe_unknown_text(CONTROL_FILE, line)) from error
        if found is not None and made.number != found.number:
            yield found
        found = made
    if found is not None:
        yield found


def _parse_line(found: KmodBudget | None, line: str) -> KmodBudget:
    """A new instance, or the one above with what this line adds."""
    kind, name, *words = line.split(" ")
    if kind == "instance":
        return _parse_budget(name, dict(word.split("=", 1) for word in words))
    if found is None or found.name != name:
        raise ValueError(f"{kind} of {name} does not follow its instance")
    return _add_line(found, kind, int(words[0]), dict(word.split("=", 1) for word in words[1:]))


def _parse_budget(name: str, words: Mapping[str, str]) -> KmodBudget:
    return KmodBudget(
        name,
        number=int(words["id"]),
        cgroup=int(words["cgroup"]) if "cgroup" in words else None,
        weight=int(words["weight"]),
        files=int(words["files"]),
        is_removed=words.get("removed") == "1",
        is_deny=words.get("deny") == "1",
    )


def _add_line(found: KmodBudget, kind: str, minor: int, words: Mapping[str, str]) -> KmodBudget:
    if kind == "process":
        each = BudgetProcess(minor, int(words["pid"]), int(words["used"]))
        return replace(found, processes=(*found.processes, each))
    use = BudgetCard(int(words["limit"]), int(words["used"]), int(words["peak"]), int(words["refused"]))
    return replace(found, cards={**found.cards, minor: use})


def _describe_unknown_text(file_name: str, text: str) -> str:
    return f"{PROC_FOLDER}/{file_name} says {text[:120]!r}, which this version does not understand: do the module and vrampack have the same version?"
