"""What a limited container is to the library: the agent's folder, the driver's files, and nothing else of a container.

A mount namespace of its own for each program, so that the library's fixed paths mean something there and the machine's
own /dev and /var/lib stay as they are.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.program_result import TIMEOUT_SECONDS, ProgramResult

FOLDER = Path("/var/lib/vrampack/preload")
LIBRARY = "libvrampack.so"
SOCKET = "agent.sock"
SETUP = """
set -e
site=$1 files=$2; shift 2
mount -t tmpfs tmpfs /var/lib
mkdir -p /var/lib/vrampack/preload /var/lib/dev
mount --bind "$site" /var/lib/vrampack/preload
for node in null zero urandom; do : >/var/lib/dev/$node; mount --bind /dev/$node /var/lib/dev/$node; done
for file in "$files"/nvidia*; do : >/var/lib/dev/${file##*/}; mount --bind "$file" /var/lib/dev/${file##*/}; done
mount --rbind /var/lib/dev /dev
exec env "$@"
"""


@dataclass(frozen=True, slots=True)
class PreloadedContainer:
    """Programs in it are children of this process: same limit, same agent, ended by the test that started them."""

    site: Path
    """Becomes /var/lib/vrampack/preload."""
    files: Path
    """Where the driver serves its files."""

    @property
    def socket(self) -> Path:
        return self.site / SOCKET

    def run(
        self, program: Path, *arguments: str, is_preloaded: bool = True, timeout: int = TIMEOUT_SECONDS
    ) -> ProgramResult:
        command = self._command([str(program), *arguments], is_preloaded=is_preloaded)
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        return ProgramResult(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, program: Path, *arguments: str) -> Iterator[PreloadedProgram]:
        """Killed afterwards, if it has not ended by then. Its pid is the program's own."""
        command = self._command([str(program), *arguments], is_preloaded=True)
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield PreloadedProgram(process)
            finally:
                process.kill()

    def _command(self, words: Sequence[str], *, is_preloaded: bool) -> list[str]:
        preload = [f"LD_PRELOAD={FOLDER / LIBRARY}"] if is_preloaded else []
        script = ["unshare", "--mount", "sh", "-c", SETUP, "sh", str(self.site), str(self.files)]
        return [*script, *preload, *words]


@dataclass(frozen=True, slots=True)
class PreloadedProgram:
    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for_line(self, line: str) -> None:
        """Wait until it prints that line. If it ends before, raise an error that shows what it printed."""
        assert self.process.stdout is not None
        said = []
        for text in self.process.stdout:
            said.append(text.rstrip("\n"))
            if said[-1] == line:
                return
        assert self.process.stderr is not None
        complaint = self.process.stderr.read()
        code = self.process.wait()
        raise AssertionError(f"never said {line!r}, but {said}, then {code} and {complaint!r}")

    def resume(self) -> None:
        """Send the line that it waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def wait_for_end(self, timeout: int = TIMEOUT_SECONDS) -> ProgramResult:
        out, err = self.process.communicate(timeout=timeout)
        return ProgramResult(self.process.returncode, out, err)
