"""What suites build once and then find in the cache, built while suites run that do not need it, at the lowest priority."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from programs import end_group


class FirstBuilds:
    """`make first-builds-TARGET` for one target after the other. Leaving it ends the one that runs."""

    def __init__(self, targets: Sequence[str], logs: Path) -> None:
        self._targets = targets
        self._logs = logs
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._builds: dict[str, Future[int]] = {}
        self._running: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._builds = {target: self._pool.submit(self._build, target) for target in self._targets}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._running:
            end_group(self._running)
        self._pool.shutdown()

    def wait(self, target: str) -> None:
        """Until those of this target are there. One that failed says so: the suite tries it again, and shows the error."""
        started = time.monotonic()
        code = self._builds[target].result()
        sys.stdout.write(f"first builds of {target}: waited {time.monotonic() - started:.0f} s for them\n")
        if code:
            sys.stdout.write(f"{self._log_of(target).read_text(errors='replace')[-2000:]}\nthey ended with {code}\n")
        sys.stdout.flush()

    def _build(self, target: str) -> int:
        command = ["nice", "-n", "19", "make", f"first-builds-{target}"]
        with self._log_of(target).open("w") as log:
            self._running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
            return self._running.wait()

    def _log_of(self, target: str) -> Path:
        return self._logs / f"first-builds-{target}.log"
