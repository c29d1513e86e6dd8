"""Programs that wait two real minutes for an agent: begun before all other tests, so that those go on meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.driver.build import build
from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.preload.building import build_extra, build_library, script
from tests.shim.preload.container import Container, Program
from tests.shim.preload.scripted_agent import ScriptedAgent

BUILT = Path(__file__).parents[3] / "build"
LIMIT_MIB = 4301


@dataclass(frozen=True, slots=True)
class Waiting:
    """One of a container that held 3000 MiB when its agent left and wants 1000 more; one that never met an agent."""

    holder: Program
    newcomer: Program
    since: float
    """As `time.monotonic` has it."""


@contextmanager
def waiting(folder: Path) -> Iterator[Waiting]:
    extra = build_extra(folder / "extra")
    site = folder / "site"
    site.mkdir()
    build_library(site)
    with ExitStack() as stack:
        driver = stack.enter_context(FakeDriver(build(BUILT).server, folder / "driver"))
        container = Container(site, driver.folder)
        steps = script("open take 3000 wait take 1000 take 1000 free take 3000")
        holder = stack.enter_context(container.running(extra.steps, *steps))
        with ScriptedAgent(container.socket, LIMIT_MIB * MIB).serving():
            holder.says("waiting")
        since = time.monotonic()
        holder.goes_on()
        yield Waiting(holder, stack.enter_context(container.running(extra.steps, "open")), since)
