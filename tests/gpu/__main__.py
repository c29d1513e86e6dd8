"""`python -m tests.gpu [ROW...]`: the points on this machine's first card; the whole table goes to docs/gpu-results.

Without root, the points of the driver's own calls alone.

Exit 0: no point failed; 1: one did; 2: there is no GPU here.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.gpu.machine import GpuMachine, RealCard, first_card, interception
from tests.gpu.points import DRIVER_POINTS, LIMIT_MIB, POINTS, ObservedRow, Point
from tests.support.processes import REPOSITORY

RESULTS = REPOSITORY / "docs" / "gpu-results"
WORDS = {True: "pass", False: "FAIL", None: "not tried"}


async def main(rows: Sequence[str]) -> int:
    """See the module."""
    wanted = {name: point for name, point in POINTS.items() if not rows or set(rows) & set(name.split())}
    card = first_card()
    if card is None:
        sys.stderr.write("tests.gpu: needs an NVIDIA card with its driver\n")
        return 2
    seen: dict[str, ObservedRow] = {}
    with tempfile.TemporaryDirectory() as scratch:
        async with _machine(card, Path(scratch)) as machine:
            for name, point in wanted.items():
                seen[name] = await _tried(name, point, machine)
                sys.stdout.write(f"{WORDS[seen[name].ok]:<9}  {name:<40}  {seen[name].what}\n")
    if not rows:
        _write(card, seen)
    return 1 if not seen or any(each.ok is False for each in seen.values()) else 0


def _write(card: RealCard, seen: Mapping[str, ObservedRow]) -> None:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{re.sub('[^a-z0-9]+', '-', card.name.lower())}-{card.driver}.md"
    file.write_text(_page(card, seen))
    sys.stdout.write(f"{file.relative_to(REPOSITORY)}\n")


@asynccontextmanager
async def _machine(card: RealCard, scratch: Path) -> AsyncIterator[GpuMachine]:
    """The library's folder is a fixed one, and root's."""
    if os.geteuid() != 0:
        yield GpuMachine(card, None, scratch)
        return
    async with GpuMachine.limited_to(card, LIMIT_MIB, scratch) as machine:
        yield machine


async def _tried(name: str, point: Point, machine: GpuMachine) -> ObservedRow:
    if os.geteuid() != 0 and name not in DRIVER_POINTS:
        return ObservedRow(None, "needs root: the library's folder")
    try:
        return await point(machine)
    except (KeyError, ValueError, TimeoutError) as error:
        return ObservedRow(False, f"{type(error).__name__}: {error}")  # noqa: FBT003


def _page(card: RealCard, seen: Mapping[str, ObservedRow]) -> str:
    between = interception()
    lines = [
        f"# {card.name}, driver {card.driver}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, kernel {platform.release()}, {card.memory_mib} MiB, limit {LIMIT_MIB} MiB, back end `preload`."
        + (
            f" System calls are intercepted by {between}: what is seen here is of it and the driver together."
            * bool(between)
        ),
        "",
        "| point | result | seen |",
        "|---|---|---|",
        *(f"| {name} | {WORDS[each.ok]} | {each.what.replace('|', '/')} |" for name, each in seen.items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
