"""Programs that wait two real minutes for an agent: begun before all other tests, so that those go on meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.driver.build import build_fake_driver
from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.preload.building import build_extra, build_library, build_script
from tests.shim.preload.container import PreloadedContainer, PreloadedProgram
from tests.shim.preload.scripted_agent import ScriptedAgent

BUILT = Path(__file__).parents[3] / "build"
LIMIT_MIB = 4301


@dataclass(frozen=True, slots=True)
class LongWait:
    """A program that held 3000 MiB when its agent left and wants 1000 more, and one that never met an agent."""

    holder: PreloadedProgram
    newcomer: PreloadedProgram
    since: float
    """As `time.monotonic` has it."""


@contextmanager
def start_long_wait(folder: Path) -> Iterator[LongWait]:
    extra = build_extra(folder / "extra")
    site = folder / "site"
    site.mkdir()
    build_library(site)
    with ExitStack() as stack:
        driver = stack.enter_context(FakeDriver(build_fake_driver(BUILT).server, folder / "driver"))
        container = PreloadedContainer(site, driver.folder)
        steps = build_script("open take 3000 wait take 1000 take 1000 free take 3000")
        holder = stack.enter_context(container.running(extra.steps, *steps))
        with ScriptedAgent(container.socket, LIMIT_MIB * MIB).serving():
            holder.wait_for_line("waiting")
        since = time.monotonic()
        holder.resume()
        yield LongWait(holder, stack.enter_context(container.running(extra.steps, "open")), since)
