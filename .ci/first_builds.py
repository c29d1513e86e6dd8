"""What suites build once and then find in the cache, built while suites run that do not need it, at the lowest priority."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from programs import end_group
from suites import Suite

LOWEST_PRIORITY = '{ echo 19 > /proc/self/autogroup; } 2> /dev/null; exec nice -n 19 "$@"'
"""Linux shares processors among sessions first, and `nice` counts within one. Programs of tests have sessions of their own."""


class FirstBuilds:
    """`make first-builds-TARGET` for one suite after the other. Leaving it ends the one that runs."""

    def __init__(self, suites: Sequence[Suite], logs: Path) -> None:
        self._suites = suites
        self._logs = logs
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._builds: dict[str, Future[int]] = {}
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_over = False

    def __enter__(self) -> Self:
        self._builds = {suite.target: self._pool.submit(self._build, suite) for suite in self._suites}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_over = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._running:
            end_group(self._running)
        self._pool.shutdown()

    def wait(self, suite: Suite, seconds: float | None) -> str:
        """Until those of this suite are there, and nothing to say; else the end of their log. The suite tries a failed one again.

        Raises `TimeoutError`, at once where no time is left.
        """
        if seconds is not None and seconds < 0:
            raise TimeoutError
        code = self._builds[suite.target].result(seconds)
        return f"{self._log_of(suite).read_text(errors='replace')[-2000:]}\nended with {code}\n" if code else ""

    def _build(self, suite: Suite) -> int:
        command = ["sh", "-c", LOWEST_PRIORITY, "sh", "make", f"first-builds-{suite.target}"]
        environment = {**os.environ, **suite.variables}
        with self._log_of(suite).open("w") as log:
            with self._lock:
                if self._is_over:
                    return 1
                self._running = running = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            return running.wait()

    def _log_of(self, suite: Suite) -> Path:
        return self._logs / f"first-builds-{suite.target}.log"
