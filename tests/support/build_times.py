"""Tells `.ci/timed` how long the suite waited for what it builds once and then finds in its cache."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "VRAMPACK_BUILD_TIMES"
"""The file that `.ci/timed` reads: a line for each build, its start and its end on the monotonic clock."""


@contextmanager
def timed_build() -> Iterator[None]:
    """Around a build that takes minutes; one that fails counts too."""
    started = time.monotonic()
    try:
        yield
    finally:
        if file := os.environ.get(VARIABLE):
            with Path(file).open("a") as lines:
                lines.write(f"{started:.1f} {time.monotonic():.1f}\n")
