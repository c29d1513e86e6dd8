"""Everything at once: processes that race, fork and are killed, invalid calls, instances that come and go."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.fakes.driver.driver import MIB
from tests.machine.kernels import Kernel
from tests.shim.kmod.shares import scale_for_kernel, scale_races_for_kernel
from tests.shim.kmod.world import BudgetPlace, KmodWorld
from tests.support.polling import wait_until

LIMIT_MIB = 4301
SESSIONS = int(os.environ.get("VRAMPACK_KMOD_SESSIONS", "4000"))
SESSIONS_BESIDE_CHANGES = 1000
CALLS = int(os.environ.get("VRAMPACK_KMOD_CALLS", "100000"))
WORKERS = 4
STOPS = 10
ROUNDS = 5
SECONDS = 900


@pytest.fixture(autouse=True)
def ends_empty(world: KmodWorld) -> Iterator[None]:
    world.new_peak()
    yield
    wait_until(lambda: world.driver().cards[0].used == 0, what="what the driver still has given out")
    wait_until(lambda: all(card.used == 0 for each in world.instances().values() for card in each.cards.values()))
    world.forget()
    wait_until(lambda: world.state()["files"] == "0", what="files that are not forgotten")


def set_probe(place: BudgetPlace) -> None:
    """The first privileged program sets the probe on the driver's ioctl: not while others call it (`Machine.is_parallel`)."""
    assert place.run("app", "1").lines == ["allocated 1 MiB"]


@pytest.mark.timeout(SECONDS + 60)
def test_the_limit_holds_under_load(world: KmodWorld, kernel: Kernel) -> None:
    """Thousands of sessions of processes on two processors, each with several pieces of memory.

    The driver's own peak is within the limit, and nothing is left.
    """
    sessions = scale_races_for_kernel(kernel, SESSIONS)
    place = world.limited("a", {0: LIMIT_MIB})
    set_probe(place)
    ended = world.machine.run("stress", str(WORKERS), str(sessions), "1", start=place.start, timeout=SECONDS)
    assert (ended.code, ended.err) == (0, "")
    figures = re.fullmatch(r"(\d+) given, (\d+) refused, (\d+) killed, (\d+) forked, peak (\d+)\n", ended.out)
    assert figures
    *happened, peak_mib = map(int, figures.groups())
    assert all(number > sessions // 40 for number in happened), ended.out
    assert sum(happened[:2]) >= 3 * sessions
    assert LIMIT_MIB * 0.8 < peak_mib <= LIMIT_MIB
    card = world.card("a")
    assert LIMIT_MIB * MIB * 0.8 < world.driver().cards[0].peak <= LIMIT_MIB * MIB
    assert card.peak <= LIMIT_MIB * MIB
    assert card.refused > 0


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("seed", [1, 2])
def test_malformed_calls_neither_crash_nor_charge_wrongly(world: KmodWorld, kernel: Kernel, seed: int) -> None:
    """No oops, and whenever the program stops it is charged for what the driver gave it."""
    place = world.limited("a", {0: LIMIT_MIB})
    with place.running("malformed", str(scale_for_kernel(kernel, CALLS // 2)), str(seed)) as program:
        for _ in range(STOPS):
            program.wait_for_line("waiting", timeout=SECONDS)
            given = world.driver().cards[0].by_process.get(program.pid, 0)
            assert world.instances()["a"].processes == {(0, program.pid): given}
            assert given > 0
            program.resume()
        ended = program.wait_for_end(timeout=SECONDS)
        assert (ended.code, ended.err) == (0, "")


@pytest.mark.timeout(SECONDS)
def test_limits_hold_while_instances_change_under_load(world: KmodWorld, kernel: Kernel) -> None:
    """Resized, removed, added again and read while two containers race; the resized one never exceeds the largest limit there was."""
    places = [world.limited(name, {0: LIMIT_MIB}) for name in ("a", "b")]
    set_probe(places[0])
    racing = [
        world.machine.start(
            "stress", "2", f"{scale_for_kernel(kernel, SESSIONS_BESIDE_CHANGES)}", "7", start=each.start
        )
        for each in places
    ]
    rounds = 0
    while any(each.output.code is None for each in racing):
        world.add("a", {0: (4000 + rounds % 300) * MIB})
        world.command("remove b")
        world.add("b", {0: LIMIT_MIB * MIB})
        assert world.node("0/a/meminfo").startswith("Free: ")
        world.instances()
        rounds += 1
    for each in racing:
        ended = each.wait_for_end(SECONDS)
        assert (ended.code, ended.err) == (0, "")
    assert rounds >= ROUNDS
    assert world.card("a").peak <= LIMIT_MIB * MIB
