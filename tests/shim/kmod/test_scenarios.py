"""The limit as programs see it in a kernel: nothing is in the container, and every program is static."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.fakes.driver.driver import MIB
from tests.shim.kmod.world import KmodWorld
from tests.support.limit_cases import MANAGED_REFUSED, REFUSED
from tests.support.polling import wait_until

LIMIT = {0: 4301}
LIMIT_BYTES = 4509925376
QUERY = ("--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits")
TOTAL = f"Total amount of global memory: 4301 MBytes ({LIMIT_BYTES} bytes)"
IN_HAND_MIB = 3193
"""What one pod of the founding application takes."""


@pytest.fixture(autouse=True)
def ends_empty(world: KmodWorld) -> Iterator[None]:
    """After every test nothing is held: neither for the module nor for the driver."""
    world.new_peak()
    yield
    wait_until(lambda: world.driver().cards[0].used == 0, what="what the driver still has given out")
    wait_until(
        lambda: not any(card.used for each in world.instances().values() for card in each.cards.values()), what="books"
    )
    world.forget()


def test_s1_two_pods_share_one_card(world: KmodWorld) -> None:
    """Each sees a card of 4301 MiB, of which 3193 are used and 1108 free; the node sees the sum."""
    first, second = world.limited("app-0", LIMIT), world.limited("app-1", LIMIT)
    with (
        first.running("app", "--total", "--hold", f"{IN_HAND_MIB}") as one,
        second.running("app", "--hold", "3193") as two,
    ):
        one.wait_for_line(TOTAL)
        one.wait_for_line("holding")
        two.wait_for_line("holding")
        for place in (first, second):
            assert place.run("nvidia-smi", *QUERY).out == "4301, 3193, 1108\n"
            assert place.run("app", "1109").lines == [REFUSED]
        total, used, _ = (int(each) for each in world.host().run("nvidia-smi", *QUERY).out.split(", "))
        assert (total, used) == (16130, 2 * IN_HAND_MIB)
        for name in ("app-0", "app-1"):
            assert (world.card(name).limit, world.card(name).used) == (LIMIT_BYTES, IN_HAND_MIB * MIB)


def test_s2_a_greedy_neighbour_harms_only_itself(world: KmodWorld) -> None:
    first, greedy = world.limited("app-0", LIMIT), world.limited("app-6g", LIMIT)
    with first.running("app", "--hold", "3193") as app:
        app.wait_for_line("holding")
        ended = greedy.run("app", "6144")
        assert (ended.lines, ended.code != 0) == ([REFUSED], True)
        assert world.card("app-6g").refused == 1
        assert world.card("app-6g").peak == 0
        assert first.run("app", "1108").lines == ["allocated 1108 MiB"]
        app.kill(signal.SIGTERM)
        assert app.wait_for_end().code == 0
    assert world.card("app-0").refused == 0


@pytest.mark.parametrize("form", ["--xfer", "--short", "--heap", "--raw", "--pages=2m"])
def test_every_form_of_the_call_is_counted(world: KmodWorld, form: str) -> None:
    """Wrapped, short, by the heap, past libc, in large pages."""
    place = world.limited("a", LIMIT)
    ended = place.run("app", form, "4000", "--then", "400", "--then", "300", "--total")
    assert ended.lines == ["allocated 4000 MiB", REFUSED, "allocated 300 MiB", TOTAL]
    assert world.driver().cards[0].peak == 4300 * MIB
    assert world.card("a").peak == 4300 * MIB


def test_an_allocation_that_does_not_fit_is_refused_and_the_program_continues(world: KmodWorld) -> None:
    """3193 + 1109 is 1 more than 4301, and 1108 is not."""
    place = world.limited("a", LIMIT)
    ended = place.run("app", "3193", "--then", "1109", "--then", "1108", "--then", "1")
    assert ended.lines == ["allocated 3193 MiB", REFUSED, "allocated 1108 MiB", REFUSED]
    assert world.driver().cards[0].peak == LIMIT_BYTES


def test_processes_share_one_budget_and_are_listed_separately(world: KmodWorld) -> None:
    place = world.limited("a", LIMIT)
    with place.running("app", "--hold", "4000") as one, place.running("app", "--hold", "200") as two:
        one.wait_for_line("holding")
        two.wait_for_line("holding")
        assert place.run("app", "102").lines == [REFUSED]
        assert place.run("app", "100").lines == ["allocated 100 MiB"]
        meminfo = world.node("0/a/meminfo").splitlines()
        assert meminfo[0] == f"Free: {101 * MIB}"
        assert sorted(meminfo[1:]) == sorted([f"PID: {one.pid} Mem: {4000 * MIB}", f"PID: {two.pid} Mem: {200 * MIB}"])
        assert world.instances()["a"].processes == {(0, one.pid): 4000 * MIB, (0, two.pid): 200 * MIB}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_ended_process_frees_everything(world: KmodWorld, number: signal.Signals) -> None:
    place = world.limited("a", LIMIT)
    with place.running("app", "--hold", "4300") as app:
        app.wait_for_line("holding")
        app.kill(number)
        app.wait_for_end()
    assert place.run("app", "4300").lines == ["allocated 4300 MiB"]


def test_a_duplicate_of_another_containers_memory_is_refused(world: KmodWorld) -> None:
    """No container would be charged once the first has freed it. Within one container it works as usual."""
    giver, taker = world.limited("a", LIMIT), world.limited("b", LIMIT)
    with giver.running("app", "--share", "--hold", "4000") as app:
        app.wait_for_line("allocated 4000 MiB")
        name = app.read_line().removeprefix("shared ")
        app.wait_for_line("holding")
        assert taker.run("app", "--take", name, "100").lines == ["error 1: cudaErrorInvalidValue (status 0x1b)"]
        assert world.card("b").used == 0
        with giver.running("app", "--take", name, "--hold", "300") as other:
            other.wait_for_line("holding")
            app.kill()
            app.wait_for_end()
            assert world.card("a").used == 4300 * MIB
            assert giver.run("app", "2").lines == [REFUSED]
    wait_until(lambda: world.card("a").used == 0, what="the end of the duplicate")


def test_managed_memory_is_refused_and_the_rest_of_uvm_is_not(world: KmodWorld) -> None:
    """The second file that CUDA opens there is initialised as usual: the driver still recognises its own files."""
    place = world.limited("a", LIMIT)
    assert place.run("app", "--managed", "1").lines == [MANAGED_REFUSED]
    assert place.run("steps", "open", "uvm", "take", "100").lines[-1] == "allocated 100 MiB"
    assert world.host().run("app", "--managed", "1").lines == ["allocated 1 MiB managed"]


def test_an_allocation_that_the_driver_refuses_is_not_charged(world: KmodWorld) -> None:
    """The card itself is full: what was reserved for the call is free again."""
    place = world.limited("a", LIMIT)
    with world.host().running("app", "--hold", "14000") as app:
        app.wait_for_line("holding")
        ended = place.run("app", "1000", "--then", "3000", "--then", "500")
        assert ended.lines == ["allocated 1000 MiB", REFUSED, "allocated 500 MiB"]
        assert world.card("a").refused == 0


def test_a_limit_is_changed_while_it_is_used(world: KmodWorld) -> None:
    """Both ways of setting it; below what is used nothing more is granted, and nothing is taken away."""
    place = world.limited("a", LIMIT)
    with place.running("steps", "open", "take", "3000", "wait", "take", "500", "wait", "take", "500") as program:
        program.wait_for_line("waiting")
        world.machine.write("/proc/cgpu_km/0/a/memsize", f"{3400 * MIB}\n")
        program.resume()
        program.wait_for_line(REFUSED)
        assert place.run("nvidia-smi", *QUERY).out == "3400, 3000, 400\n"
        world.add("a", {0: 3500 * MIB})
        program.resume()
        assert program.wait_for_end().lines[-1] == "allocated 500 MiB"
    world.add("a", {0: 100 * MIB})
    assert place.run("app", "100", "--then", "2").lines == ["allocated 100 MiB", REFUSED]


def test_a_container_without_a_limit_is_left_alone(world: KmodWorld) -> None:
    """Its open files have the driver's own operations table; of a limited container only the control file has another."""
    with world.unlimited("free").running("app", "--hold", "15000") as app:
        app.wait_for_line("holding")
        assert world.tables() == {("nvidiactl", "own"), ("nvidia0", "own"), ("nvidia-uvm", "own")} & world.tables()
        assert ("nvidiactl", "own") in world.tables()
        with world.limited("a", LIMIT).running("app", "--hold", "100") as limited:
            limited.wait_for_line("holding")
            assert ("nvidiactl", "other") in world.tables()
            assert ("nvidia0", "other") not in world.tables()


def test_a_card_for_which_the_container_has_no_limit_is_refused(world: KmodWorld) -> None:
    """Two cards with limits of their own; a third without."""
    place = world.limited("a", {0: 1000, 1: 2000})
    for minor, mib in ((0, 1000), (1, 2000)):
        ended = place.run("app", "--minor", f"{minor}", f"{mib}", "--then", "1", "--total")
        assert ended.lines[:2] == [f"allocated {mib} MiB", REFUSED]
        assert f"{mib} MBytes" in ended.lines[2]
    assert place.run("app", "--minor", "2", "1").lines == [REFUSED]
