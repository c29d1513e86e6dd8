"""A limit on memory that NVIDIA's own allocator hands out: what S1, S2 and a hostile tenant see of it, and what the card loses."""

from __future__ import annotations

import os
import re

import pytest

from tests.driver.opened_card import ENV, limited, on_node, read_lost_mib
from tests.driver.real_driver import LIMIT_MIB, RealDriver, read_smi
from tests.fakes.driver.driver import MIB
from tests.shim.kmod.world import CONTROL
from tests.support.limit_cases import CASES, REFUSED, LimitCase
from tests.support.polling import wait_until

APP_MIB = 3193
TOTAL_MIB = 81920
REQUESTS = int(os.environ.get("VRAMPACK_DRIVER_REQUESTS", "1500"))
SWAPS = int(os.environ.get("VRAMPACK_DRIVER_SWAPS", "1000"))
EXCHANGES = 100
SEED = 7
SWAP_RESULT = re.compile(r"(\d+) of (\d+) won, (\d+) refused, (\d+) given\n")
SWAP_KINDS = ("size", "heap", "class", "wrapped", "status", "free")


@pytest.mark.parametrize("case", [each for each in CASES if each.program != "nvidia-smi"], ids=str)
def test_a_limited_program_gets_the_same_answers_as_from_the_simulated_driver(
    card: RealDriver, case: LimitCase
) -> None:
    assert limited(card, "a", case.limit_mib).run(case.program, *case.arguments).lines == list(case.said)
    assert card.world.card("a").used == 0


def test_without_a_limit_the_driver_answers_as_without_the_module(card: RealDriver) -> None:
    before = on_node(card).run("app", "5000", "--then", "70000", "--total", "--free")
    card.load_shim()
    limited(card, "a")
    after = card.world.unlimited("free").inside(env=ENV).run("app", "5000", "--then", "70000", "--total", "--free")
    assert before.out.startswith("allocated 5000 MiB\nallocated 70000 MiB\n")
    assert (after.code, after.out) == (before.code, before.out)


def test_s1_two_pods_share_the_card_and_nvidia_smi_shows_it(card: RealDriver) -> None:
    """Each sees a card of 4301 MiB with its own 3193 on it; the node sees the whole card and both."""
    at_rest, total = read_smi(on_node(card))
    places = [limited(card, name) for name in ("a", "b")]
    with (
        places[0].running("app", f"{APP_MIB}", "--hold") as first,
        places[1].running("app", f"{APP_MIB}", "--hold") as second,
    ):
        for each in (first, second):
            each.wait_for_line(f"allocated {APP_MIB} MiB")
            each.wait_for_line("holding")
        assert [read_smi(each) for each in places] == [(APP_MIB, LIMIT_MIB)] * 2
        assert places[0].run("app", "1109").lines == [REFUSED]
        assert read_smi(on_node(card)) == (at_rest + 2 * APP_MIB, total) == (at_rest + 2 * APP_MIB, TOTAL_MIB)
        assert [card.world.card(name).used for name in ("a", "b")] == [APP_MIB * MIB] * 2


def test_s2_a_greedy_neighbour_harms_only_itself(card: RealDriver) -> None:
    """Whatever it tries is refused, and it is killed; the others keep what they have."""
    before = read_lost_mib(card)
    with limited(card, "a").running("app", f"{APP_MIB}", "--hold") as neighbour:
        neighbour.wait_for_line("holding")
        greedy = limited(card, "b")
        assert greedy.run("app", "6144").lines == [REFUSED]
        with greedy.running("app", "4000", "--then", "2144", "--hold") as again:
            again.wait_for_line(REFUSED)
            again.wait_for_line("holding")
            assert read_lost_mib(card) - before == APP_MIB + 4000
            again.kill()
            again.wait_for_end()
        wait_until(lambda: card.world.card("b").used == 0, what="that what it had comes back")
        assert read_lost_mib(card) - before == APP_MIB
        assert not neighbour.has_ended
        assert card.world.card("a").used == APP_MIB * MIB


def test_no_request_pins_more_than_it_is_charged_for(card: RealDriver) -> None:
    """Random sizes, attributes, alignments and addresses: what the card lost, against what the module charged."""
    limited(card, "a", 40_000)
    words = (f"{SEED}", f"{REQUESTS}", "/sys/fs/cgroup/a", CONTROL)
    ended = card.machine.run("pins", *words, start=on_node(card).start, timeout=60 + REQUESTS / 10)
    assert ended.code == 0, ended
    counts = re.match(r"(\d+) granted, (\d+) no room, (\d+) not offered, (\d+) otherwise refused, 0 wrong", ended.out)
    assert counts, ended
    assert all(int(each) > REQUESTS // 50 for each in counts.groups()), ended.out


@pytest.mark.parametrize("kind", SWAP_KINDS)
def test_a_second_thread_that_changes_a_call_gains_nothing(card: RealDriver, kind: str) -> None:
    before = read_lost_mib(card)
    place = limited(card, "a")
    ended = card.machine.run("swap", kind, f"{SWAPS}", start=place.start, timeout=60 + SWAPS / 10)
    assert (ended.code, ended.err) == (0, "")
    figures = SWAP_RESULT.fullmatch(ended.out)
    assert figures, ended
    won, _, _, given = map(int, figures.groups())
    assert (won, given > 0) == (0, True), ended.out
    assert (card.world.card("a").used, read_lost_mib(card)) == (0, before)


def test_malformed_calls_leave_nothing_allocated(card: RealDriver) -> None:
    """Random words in every call that the module checks: the driver answers, and everything is freed at the end."""
    before = read_lost_mib(card)
    place = limited(card, "a")
    with place.running("malformed", "4000", f"{SEED}") as program:
        while not program.has_ended:
            program.resume()
            card.world.state()
        assert program.wait_for_end().code == 0, program.error_output
    assert (card.world.card("a").used, read_lost_mib(card)) == (0, before)


@pytest.mark.parametrize(("way", "kept_mib"), [("keep", 4000), ("many", 4250)])
def test_exported_memory_stays_charged_until_its_file_is_closed(card: RealDriver, way: str, kept_mib: int) -> None:
    """Its handles are freed, and the driver keeps the memory: a gigabyte in a file, or four quarters."""
    before = read_lost_mib(card)
    with limited(card, "a").running("export", way, "1000") as program:
        program.wait_for_line("kept 4000 MiB, then 0x51")
        program.wait_for_line("kept")
        assert (card.world.card("a").used, read_lost_mib(card) - before) == (kept_mib * MIB, kept_mib)
        program.resume()
        program.wait_for_line("closed")
        assert (card.world.card("a").used, read_lost_mib(card) - before) == ((kept_mib - 1000) * MIB, kept_mib - 1000)
        program.kill()
        program.wait_for_end()
    wait_until(lambda: card.world.card("a").used == 0, what="that the files are closed")
    assert read_lost_mib(card) == before


def test_imported_memory_is_charged_when_its_file_has_gone(card: RealDriver) -> None:
    before = read_lost_mib(card)
    with limited(card, "a").running("export", "import", "4000") as program:
        program.wait_for_line("imported")
        assert (card.world.card("a").used, read_lost_mib(card) - before) == (4000 * MIB, 4000)
        program.resume()
        program.wait_for_line("freed")
        assert (card.world.card("a").used, read_lost_mib(card)) == (0, before)


def test_another_container_s_file_is_not_imported(card: RealDriver) -> None:
    places = [limited(card, name) for name in ("a", "b")]
    for borrower, answer in ((places[1], "0x3b"), (places[0], "0x0")):
        with places[0].running("export", "lend", "1000", "/lent") as lender:
            lender.wait_for_line("lends")
            assert borrower.run("export", "borrow", "/lent").lines == [f"borrowed: {answer}"]
            lender.wait_for_line("lent")
            assert (card.world.card("a").used, card.world.card("b").used) == (1000 * MIB, 0)


def test_exports_are_charged_while_another_thread_swaps_the_descriptor(card: RealDriver) -> None:
    before = read_lost_mib(card)
    with limited(card, "a").running("export", "race", f"{EXCHANGES}") as program:
        program.wait_for_line(f"{EXCHANGES} of {EXCHANGES} exported", timeout=120)
        program.wait_for_line("kept")
        wait_until(
            lambda: card.world.card("a").used == (read_lost_mib(card) - before) * MIB, what="that all is settled"
        )
        program.kill()
        program.wait_for_end()


def test_a_call_that_the_driver_refuses_does_not_raise_the_peak(card: RealDriver) -> None:
    """It asks for more than the card has, which the limit would allow."""
    place = limited(card, "a", 2 * TOTAL_MIB)
    assert place.run("app", "1", "--then", f"{TOTAL_MIB + 1024}").lines == ["allocated 1 MiB", REFUSED]
    found = card.world.card("a")
    assert (found.used, found.peak // MIB, found.refused) == (0, 1, 0)
