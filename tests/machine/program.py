"""A program in a virtual machine, with the same interface as a program in a container (tests/shim/preload/container.py)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.machine.line import MOST_BYTES, SerialFrame
from tests.support.program_result import TIMEOUT_SECONDS, ProgramResult

SPAWN, SYSTEM_CALL, INPUT, SIGNAL = "S", "L", "I", "K"
STARTED, OUT, ERR, ENDED, CLOSED = "P", "O", "E", "X", "C"


@dataclass(frozen=True, slots=True)
class GuestStart:
    """The cgroup, user and namespaces in which a program starts (guest/spawn.c)."""

    cgroup: str = ""
    """Relative to the root of the cgroups; created if missing."""
    env: Mapping[str, str] = field(default_factory=dict)
    uid: int | None = None
    capabilities: int | None = None
    """A mask; None: all that the user has."""
    has_own_pid_namespace: bool = False
    """In a new PID namespace, with its own /proc."""
    shares_pid_namespace_of: int | None = None
    """In the PID namespace of this process."""
    has_own_user_namespace: bool = False
    """In a new user namespace, as root there."""

    def texts(self, words: Sequence[str]) -> bytes:
        texts = [f"arg={word}" for word in words] + [f"env={name}={value}" for name, value in self.env.items()]
        texts += [f"cgroup={self.cgroup}"] if self.cgroup else []
        texts += [f"uid={self.uid}"] if self.uid is not None else []
        texts += [f"caps={self.capabilities:x}"] if self.capabilities is not None else []
        texts += (
            [f"pidns={self.shares_pid_namespace_of or ''}"]
            if self.has_own_pid_namespace or self.shares_pid_namespace_of
            else []
        )
        texts += ["userns="] if self.has_own_user_namespace else []
        return b"".join(text.encode() + b"\0" for text in texts)


def call_content(words: Sequence[str], text: str) -> bytes:
    """The content of a frame for guest/caller.c: a call and its input."""
    return b"".join(word.encode() + b"\0" for word in [*words, ""]) + text.encode()


@dataclass(slots=True)
class GuestOutput:
    """What the machine has reported about one program or call."""

    pid: int | None = None
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    code: int | None = None
    is_closed: bool = False

    def take(self, frame: SerialFrame) -> None:
        if frame.kind == STARTED:
            self.pid = frame.number
        elif frame.kind == OUT:
            self.out += frame.content
        elif frame.kind == ERR:
            self.err += frame.content
        elif frame.kind == ENDED:
            self.code = frame.number
        elif frame.kind == CLOSED:
            self.is_closed = True


Wait = Callable[[Callable[[], bool], float, str], None]
"""Receives frames until the condition holds. Takes the condition, a time-out in seconds, and what to name in the error."""
Send = Callable[[int, str, bytes], None]
"""Takes a program's number, and the kind and content of a frame."""


@dataclass(frozen=True, slots=True)
class GuestProgram:
    number: int
    send: Send
    output: GuestOutput
    wait: Wait
    name: str

    @property
    def pid(self) -> int:
        """Its pid in the root PID namespace of the machine."""
        self.wait(lambda: self.output.pid is not None, TIMEOUT_SECONDS, f"start of {self.name}")
        return self.output.pid or 0

    @property
    def has_ended(self) -> bool:
        """As of the frames received so far; does not wait."""
        return self.output.code is not None

    @property
    def error_output(self) -> str:
        """What it has written to standard error so far."""
        return self.output.err.decode(errors="replace")

    def wait_for_line(self, line: str, timeout: float = TIMEOUT_SECONDS) -> None:
        """Wait until it has printed this line. If it ends first, the error shows what it printed."""
        printed = []
        while (text := self._next_line(timeout)) is not None:
            printed.append(text)
            if text == line:
                return
        raise AssertionError(
            f"{self.name} never printed {line!r}, but {printed}, then {self.output.code} and {self.error_output!r}"
        )

    def read_line(self, timeout: float = TIMEOUT_SECONDS) -> str:
        """The next line of its standard output."""
        text = self._next_line(timeout)
        if text is None:
            raise AssertionError(f"{self.name} printed no more, then {self.output.code} and {self.error_output!r}")
        return text

    def send_input(self, text: str | bytes) -> None:
        """Write to its standard input."""
        content = text.encode() if isinstance(text, str) else text
        for start in range(0, len(content), MOST_BYTES):
            self.send(self.number, INPUT, content[start : start + MOST_BYTES])

    def close_input(self) -> None:
        self.send(self.number, INPUT, b"")

    def resume(self) -> None:
        """Send the empty line that the program waits for."""
        self.send_input("\n")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the signal without waiting; `wait_for_end` waits."""
        self.send(self.number, SIGNAL, bytes([number]))

    def wait_for_end(self, timeout: float = TIMEOUT_SECONDS) -> ProgramResult:
        """Wait until it and its children have closed their output; the result has what was not read yet."""
        self.close_input()
        output = self.output
        self.wait(lambda: output.code is not None and output.is_closed, timeout, f"end of {self.name}")
        return ProgramResult(output.code or 0, output.out.decode(errors="replace"), self.error_output)

    def _next_line(self, timeout: float) -> str | None:
        output = self.output
        self.wait(lambda: b"\n" in output.out or output.is_closed, timeout, f"a line of {self.name}")
        text, newline, rest = bytes(output.out).partition(b"\n")
        if not newline:
            return None
        output.out[:] = rest
        return text.decode(errors="replace")
