"""The agent's own accounting behind the library, in a process that can be killed: every caller is one container of 4301 MiB.

python -m tests.shim.preload.real_agent FOLDER LIBRARY [DRIVER]     says "begun" and serves FOLDER/preload
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.preload_node import PreloadNode
from vrampack.agent.limits.accounting import ProcessUsage

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class RealAgent:
    """`folder / preload` is what containers are shown."""

    folder: Path
    library: Path

    @property
    def site(self) -> Path:
        return self.folder / "preload"

    @contextmanager
    def serving(self) -> Iterator[subprocess.Popen[str]]:
        """Killed at the end, as kill -9 does it."""
        command = [sys.executable, "-m", "tests.shim.preload.real_agent", str(self.folder), str(self.library)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "begun\n"
                yield process
            finally:
                process.send_signal(signal.SIGKILL)

    def books(self) -> tuple[ProcessUsage, ...]:
        """As the next agent finds them. No agent may be serving."""

        async def found() -> tuple[ProcessUsage, ...]:
            async with PreloadNode(self.folder, library=self.library.read_bytes()).run_back_end() as back_end:
                return back_end.list_processes()

        return asyncio.run(found())


async def main(node: PreloadNode) -> None:
    async with node.run_back_end():
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    node = PreloadNode(Path(sys.argv[1]), library=Path(sys.argv[2]).read_bytes())
    node.driver = sys.argv[3] if len(sys.argv) > 3 else node.driver
    asyncio.run(main(node))
