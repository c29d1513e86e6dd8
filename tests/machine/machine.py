"""Boots a kernel in a virtual machine, and starts programs in it, each in its own cgroup, user and namespaces.

    with Machine(kernel, programs=[app]) as machine:
        machine.insmod("/lib/vrampack.ko")
        ended = machine.run(app, "--once", cgroup="a")
        machine.assert_quiet()

QEMU runs without KVM: slow, but the same everywhere. If the machine panics, hangs or exits, `MachineError` shows the end of
its console. However the test ends, no process is left.
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
"""Two to ten were measured, more on a busy host."""
BOOT_ATTEMPTS = 3
"""Older kernels sometimes hang at boot if their processors run in parallel (`is_parallel`), before any of our code runs."""
PING_SECONDS = 20
"""For one system call of a busy machine; hundredths of a second were measured."""
LOCKS = "/proc/lockdep_stats"
KMEMLEAK = "/sys/kernel/debug/kmemleak"
KMEMLEAK_SECONDS = 6
"""It reports allocations that are at least five seconds old."""
CONSOLE_LINES = 60
"""Shown when a machine fails, after the first complaint: enough for a trace and what precedes it."""
SYSRQ = "/proc/sysrq-trigger"
DUMPS = "wld"
"""Printed by the kernel when a program does not end: blocked tasks, backtraces of all processors, held locks."""
DUMP_LINES = 600


class MachineError(Exception):
    """The machine does not answer, or its kernel has logged a complaint."""


class BootError(MachineError):
    """The machine hangs before its first process runs."""


class VirtualMachine:
    """`programs` are copied to /bin, `files` to their keys. `cgroups` is the version, 1 or 2.

    `is_parallel`: the processors run in parallel threads of QEMU. Tests that patch code which another processor may be
    executing must switch it off: QEMU before 8.1 sometimes keeps the translation of the temporary breakpoint. `parameters`
    are added to the kernel's command line.
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
                self._receive_until(lambda: self._is_ready, BOOT_SECONDS)
            except TimeoutError as error:
                raise BootError(
                    f"{self.kernel.release}: no boot in {BOOT_SECONDS} s\n{self._format_console_end()}"
                ) from error
            except ClosedError as error:
                raise MachineError(
                    f"{self.kernel.release} went away before its boot:\n{self._format_console_end()}"
                ) from error
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
        """Kills the program afterwards if it is still running."""
        started = self.start(program, *arguments, start=start)
        try:
            yield started
        finally:
            started.kill()

    def start(self, program: Path | str, *arguments: str, start: GuestStart | None = None) -> GuestProgram:
        """`program`: a name in /bin, a path in the machine, or the path on the host that it was copied from."""
        path = f"/bin/{Path(program).name}" if isinstance(program, Path) or "/" not in program else program
        number, output = self._add_output()
        self._send(number, SPAWN, (start or GuestStart()).texts([path, *arguments]))
        return GuestProgram(number, self._send, output, self._wait, Path(path).name)

    def read(self, path: str, *, start: GuestStart | None = None) -> str:
        return self.call("read", path, start=start)

    def write(self, path: str, text: str, *, start: GuestStart | None = None) -> None:
        """Writes all of it by one system call."""
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
        """Creates a character device with mode 0666."""
        self.call("mknod", path, str(major), str(minor))

    def inode(self, path: str) -> int:
        """The inode number. That of a cgroup's folder is the cgroup's id."""
        return int(self.call("stat", path).split()[0])

    def names(self, path: str) -> list[str]:
        return sorted(self.call("list", path).splitlines())

    def log(self) -> str:
        """The kernel's log since boot."""
        return self.call("log")

    def assert_quiet(self) -> None:
        """Raises `MachineError` if the kernel has complained, or has switched its own checks off."""
        if found := find_kernel_complaints(self.log()):
            raise MachineError(f"{self.kernel.release} complains:\n{found}")
        with suppress(FileNotFoundError):
            # For example, a module with a proprietary licence silently switches lock checking off.
            if not re.search(r"debug_locks: +1$", self.read(LOCKS), re.MULTILINE):
                raise MachineError(f"{self.kernel.release} has stopped checking locks")

    def assert_no_leaks(self) -> None:
        """Raises `MachineError` if the debug kernel finds leaked memory. Other kernels cannot tell."""
        since = self._uptime()
        try:
            self.write(KMEMLEAK, "scan")
        except FileNotFoundError:
            return
        # Younger allocations are not reported, so wait until they are old enough; the second scan reports.
        wait_until(
            lambda: self._uptime() > since + KMEMLEAK_SECONDS,
            timeout_seconds=TIMEOUT_SECONDS,
            what="allocations old enough to be reported",
        )
        self.write(KMEMLEAK, "scan")
        if found := self.read(KMEMLEAK):
            raise MachineError(f"{self.kernel.release} leaked:\n{found}")

    def _uptime(self) -> float:
        return float(self.read("/proc/uptime").split()[0])

    def call(self, name: str, *words: str, start: GuestStart | None = None, stdin: str = "") -> str:
        """Makes a system call by guest/call.c. Returns its output; raises `OSError` with its errno."""
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
            # QEMU's own messages go to the console too.
            return subprocess.Popen(words, pass_fds=[line.fileno()], stdin=subprocess.DEVNULL, stderr=console)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _send(self, number: int, kind: str, content: bytes = b"") -> None:
        try:
            self._line.send(number, kind, content)
        except ClosedError as error:
            raise MachineError(f"{self.kernel.release} has gone away:\n{self._format_console_end()}") from error

    def _wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Receive frames until the condition holds. A machine that does not answer at all is killed, so that later calls fail at once."""
        try:
            self._receive_until(condition, seconds)
        except ClosedError as error:
            raise MachineError(
                f"{self.kernel.release} went away before {what}:\n{self._format_console_end()}"
            ) from error
        except TimeoutError as error:
            dump = self._dump_tasks() if self._answers() else ""
            if not dump:
                self._process.kill()
            raise MachineError(
                f"{self.kernel.release}: no {what} in {seconds} s\n{self._format_console_end()}{dump}"
            ) from error

    def _receive_until(self, condition: Callable[[], bool], seconds: float) -> None:
        if condition():
            return
        for frame in self._line.frames(seconds):
            self._is_ready = self._is_ready or frame.kind == READY
            if output := self._outputs.get(frame.program):
                output.take(frame)
            if condition():
                return

    def _answers(self) -> bool:
        try:
            return bool(self._call_in_time("read", "/proc/uptime"))
        except (ClosedError, TimeoutError, MachineError):
            return False

    def _dump_tasks(self) -> str:
        """Task dumps from the kernel's log; empty if the machine does not answer in time."""
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
        self._receive_until(lambda: asked.output.code is not None and asked.output.is_closed, PING_SECONDS)
        return asked.output.out.decode(errors="replace")

    def _format_console_end(self) -> str:
        console = self._console.read_text(errors="replace")
        return "\n".join([find_kernel_complaints(console), "..", *console.splitlines()[-CONSOLE_LINES:]])
