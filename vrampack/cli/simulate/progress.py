"""A progress bar for runs on stderr; nothing if stderr is not a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

WIDTH = 30


class ProgressBar:
    """A bar for `total` runs. Use it as a context manager, which wipes it at the end."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._draw("")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wipe_line()

    def wipe_line(self) -> None:
        """Make room for other text."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def count_run(self, label: str) -> None:
        """One more run has ended."""
        self._done += 1
        self._draw(label)

    def _draw(self, label: str) -> None:
        if self._is_shown:
            line = format_progress(self._done, self._total, time.monotonic() - self._began)
            sys.stderr.write(f"\r\x1b[K{line}  {label}")
            sys.stderr.flush()


def format_progress(done: int, total: int, seconds: float) -> str:
    """The bar, the count, and the remaining time at this pace."""
    filled = WIDTH * done // total
    left = f"{(total - done) * seconds / done:.0f} s left" if done else ""
    return f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{total} {left}".rstrip()
