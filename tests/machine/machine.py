"""A virtual machine with a given kernel: starts programs in it, in their own cgroups, users and namespaces.

    with Machine(kernel, programs=[app]) as machine:
        machine.insmod("/lib/vrampack.ko")
        ended = machine.run(app, "--once", cgroup="a")
        machine.assert_quiet()

QEMU without KVM: slow, and the same everywhere. A machine that panics, hangs or goes away is a `MachineError` with the
end of its console. Ended by whatever happens, it leaves no process.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.machine import qemu
from tests.machine.archive import Content, write_archive
from tests.machine.building import build_init
from tests.machine.kernels import Kernel
from tests.machine.line import MOST_BYTES, ClosedError, SerialLine
from tests.machine.log import find_kernel_complaints
from tests.machine.program import SPAWN, SYSTEM_CALL, GuestOutput, GuestProgram, GuestStart, call_content
from tests.support.polling import wait_until
from tests.support.program_result import TIMEOUT_SECONDS, ProgramResult

READY, OFF = "R", "Q"
CALL = "/bin/call"
BOOT_SECONDS = 90
"""Two to ten are measured, more where the machine has other work."""
BOOT_ATTEMPTS = 3
"""An older kernel now and then hangs in its boot when its processors run at the same time (`is_parallel`), before anything of ours runs."""
PING_SECONDS = 20
"""For one system call of a machine that is busy: hundredths of a second are measured."""
LOCKS = "/proc/lockdep_stats"
KMEMLEAK = "/sys/kernel/debug/kmemleak"
KMEMLEAK_SECONDS = 6
"""Five is the age from which it reports."""
CONSOLE_LINES = 60
"""Shown for a machine that failed, beside the first complaint: a trace, and what came before it."""
SYSRQ = "/proc/sysrq-trigger"
DUMPS = "wld"
"""What the kernel is asked for where a program does not end: blocked tasks, what runs on each processor, locks that are held."""
DUMP_LINES = 600


class MachineError(Exception):
    """The machine no longer answers, or its kernel has complained."""


class BootError(MachineError):
    """It hangs before its first program runs."""


class VirtualMachine:
    """`programs` become /bin/NAME, `files` what they say. `cgroups`: 2, or 1 for the older trees.

    `is_parallel`: its processors run at the same time. Where code is patched that one of them executes, they must not:
    QEMU before 8.1 now and then keeps its translation of the breakpoint that stood there for a moment. `parameters`: more
    words of the kernel's command line.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        programs: Iterable[Path] = (),
        files: Mapping[str, Content] | None = None,
        cgroups: int = 2,
        memory_mib: int = 512,
        is_parallel: bool = True,
        parameters: str = "",
    ) -> None:
        self.kernel = kernel
        self._files: dict[str, Content] = {f"/bin/{program.name}": program for program in programs}
        self._files |= files or {}
        self._parameters = f"{'old_cgroups=1 ' if cgroups == 1 else ''}{parameters}".strip()
        self._memory_mib = memory_mib
        self._is_parallel = is_parallel
        self._outputs: dict[int, GuestOutput] = {}
        self._is_ready = False

    def __enter__(self) -> Self:
        for _ in range(BOOT_ATTEMPTS - 1):
            with suppress(BootError):
                return self._boot()
        return self._boot()

    def _boot(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="machine-")))
            self._console = folder / "console"
            ours, its = socket.socketpair()
            stack.enter_context(ours)
            with its:
                self._process = self._start(folder, its)
            stack.callback(self._end)
            self._line = SerialLine(ours)
            try:
                self._take(lambda: self._is_ready, BOOT_SECONDS)
            except TimeoutError as error:
                raise BootError(f"{self.kernel.release}: no boot in {BOOT_SECONDS} s\n{self._last_words()}") from error
            except ClosedError as error:
                raise MachineError(f"{self.kernel.release} went away before its boot:\n{self._last_words()}") from error
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        """QEMU's."""
        return self._process.pid

    def run(
        self,
        program: Path | str,
        *arguments: str,
        start: GuestStart | None = None,
        stdin: str | bytes = "",
        timeout: float = TIMEOUT_SECONDS,
    ) -> ProgramResult:
        started = self.start(program, *arguments, start=start)
        started.send_input(stdin)
        return started.wait_for_end(timeout)

    @contextmanager
    def running(self, program: Path | str, *arguments: str, start: GuestStart | None = None) -> Iterator[GuestProgram]:
        """Killed afterwards, if it has not ended by then."""
        started = self.start(program, *arguments, start=start)
        try:
            yield started
        finally:
            started.kill()

    def start(self, program: Path | str, *arguments: str, start: GuestStart | None = None) -> GuestProgram:
        """A program of /bin may be named by its name, or by its path outside."""
        path = f"/bin/{Path(program).name}" if isinstance(program, Path) or "/" not in program else program
        number, output = self._add_output()
        self._send(number, SPAWN, (start or GuestStart()).texts([path, *arguments]))
        return GuestProgram(number, self._send, output, self._wait, Path(path).name)

    def read(self, path: str, *, start: GuestStart | None = None) -> str:
        return self.call("read", path, start=start)

    def write(self, path: str, text: str, *, start: GuestStart | None = None) -> None:
        """All of it by one system call."""
        self.call("write", path, start=start, stdin=text)

    def insmod(self, path: str, *parameters: str) -> None:
        self.call("insmod", path, " ".join(parameters))

    def rmmod(self, name: str) -> None:
        self.call("rmmod", name)

    def mkdir(self, path: str) -> None:
        self.call("mkdir", path)

    def rmdir(self, path: str) -> None:
        self.call("rmdir", path)

    def mknod(self, path: str, major: int, minor: int) -> None:
        """A character device that everybody may use."""
        self.call("mknod", path, str(major), str(minor))

    def inode(self, path: str) -> int:
        """Of a cgroup's folder: its id."""
        return int(self.call("stat", path).split()[0])

    def names(self, path: str) -> list[str]:
        return sorted(self.call("list", path).splitlines())

    def log(self) -> str:
        """The kernel's, from its boot on."""
        return self.call("log")

    def assert_quiet(self) -> None:
        """The kernel has complained of nothing, and its checks were on to the end."""
        if found := find_kernel_complaints(self.log()):
            raise MachineError(f"{self.kernel.release} complains:\n{found}")
        with suppress(FileNotFoundError):
            # A module with another licence, say, switches lock checking off silently.
            if not re.search(r"debug_locks: +1$", self.read(LOCKS), re.MULTILINE):
                raise MachineError(f"{self.kernel.release} has stopped to prove its locks")

    def assert_no_leaks(self) -> None:
        """The debug kernel has found no leaked memory."""
        since = self._uptime()
        try:
            self.write(KMEMLEAK, "scan")
        except FileNotFoundError:
            return
        # Younger allocations are not reported, so wait until they are old enough; the second scan reports.
        wait_until(
            lambda: self._uptime() > since + KMEMLEAK_SECONDS, timeout_seconds=TIMEOUT_SECONDS, what="an old leak"
        )
        self.write(KMEMLEAK, "scan")
        if found := self.read(KMEMLEAK):
            raise MachineError(f"{self.kernel.release} forgot:\n{found}")

    def _uptime(self) -> float:
        return float(self.read("/proc/uptime").split()[0])

    def call(self, name: str, *words: str, start: GuestStart | None = None, stdin: str = "") -> str:
        """One system call of guest/call.c: what it read, or the `OSError` that it got."""
        content = call_content([name, *words], stdin)
        if start is not None or len(content) > MOST_BYTES:
            ended = self.run(CALL, name, *words, start=start, stdin=stdin)
        else:
            ended = self._make_call(content)
        if ended.err:
            raise MachineError(f"{name} {' '.join(words)}: {ended.err}")
        if ended.code:
            raise OSError(ended.code, os.strerror(ended.code), words[0] if words else None)
        return ended.out

    def _make_call(self, content: bytes) -> ProgramResult:
        number, output = self._add_output()
        self._send(number, SYSTEM_CALL, content)
        self._wait(lambda: output.is_closed, TIMEOUT_SECONDS, "end of call")
        return ProgramResult(output.code or 0, output.out.decode(errors="replace"), "")

    def _add_output(self) -> tuple[int, GuestOutput]:
        number = len(self._outputs) + 1
        output = self._outputs[number] = GuestOutput()
        return number, output

    def _start(self, folder: Path, line: socket.socket) -> subprocess.Popen[bytes]:
        initramfs = folder / "initramfs"
        write_archive(initramfs, {"/bin/init": build_init()} | self._files)
        words = qemu.command(
            self.kernel.vmlinuz,
            initramfs,
            console=self._console,
            line=line.fileno(),
            memory_mib=self._memory_mib,
            is_parallel=self._is_parallel,
            parameters=self._parameters,
        )
        with self._console.open("wb") as console:
            # What QEMU itself complains of is found with what the kernel says.
            return subprocess.Popen(words, pass_fds=[line.fileno()], stdin=subprocess.DEVNULL, stderr=console)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _send(self, number: int, kind: str, content: bytes = b"") -> None:
        try:
            self._line.send(number, kind, content)
        except ClosedError as error:
            raise MachineError(f"{self.kernel.release} has gone away:\n{self._last_words()}") from error

    def _wait(self, is_so: Callable[[], bool], seconds: float, what: str) -> None:
        """Read what the machine says until that is so. One that does not answer at all is ended, so that the next call need not wait."""
        try:
            self._take(is_so, seconds)
        except ClosedError as error:
            raise MachineError(f"{self.kernel.release} went away before {what}:\n{self._last_words()}") from error
        except TimeoutError as error:
            dump = self._dump_tasks() if self._answers() else ""
            if not dump:
                self._process.kill()
            raise MachineError(
                f"{self.kernel.release}: no {what} in {seconds} s\n{self._last_words()}{dump}"
            ) from error

    def _take(self, is_so: Callable[[], bool], seconds: float) -> None:
        if is_so():
            return
        for frame in self._line.frames(seconds):
            self._is_ready = self._is_ready or frame.kind == READY
            if output := self._outputs.get(frame.program):
                output.take(frame)
            if is_so():
                return

    def _answers(self) -> bool:
        try:
            return bool(self._call_in_time("read", "/proc/uptime"))
        except (ClosedError, TimeoutError, MachineError):
            return False

    def _dump_tasks(self) -> str:
        """What hangs, and where; empty if the machine does not say so in time. It is only in the kernel's log."""
        try:
            for key in DUMPS:
                self._call_in_time("write", SYSRQ, stdin=key)
            return "\n".join(["", *self._call_in_time("log").splitlines()[-DUMP_LINES:]])
        except (ClosedError, TimeoutError, MachineError):
            return ""

    def _call_in_time(self, *words: str, stdin: str = "") -> str:
        asked = self.start(CALL, *words)
        asked.send_input(stdin)
        asked.close_input()
        self._take(lambda: asked.output.code is not None and asked.output.is_closed, PING_SECONDS)
        return asked.output.out.decode(errors="replace")

    def _last_words(self) -> str:
        console = self._console.read_text(errors="replace")
        return "\n".join([find_kernel_complaints(console), "..", *console.splitlines()[-CONSOLE_LINES:]])
