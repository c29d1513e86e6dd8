"""How many Bindings are sent at once: halved once for each round without an answer, and more again with each answer."""

from __future__ import annotations

import asyncio

from extender.scheduling.bindings_in_flight import FEWEST, MOST, BindingsInFlight


async def test_the_newest_of_those_that_wait_is_sent_first() -> None:
    flight = BindingsInFlight()
    numbers = [await flight.enter(0) for _ in range(MOST)]
    waiting = [asyncio.create_task(flight.enter(10)) for _ in range(3)]
    assert await flight.enter(0.01) == 0
    waiting[2].cancel()
    await asyncio.wait([waiting[2]])
    flight.leave(numbers[0], is_silent=False)
    assert await waiting[1] == MOST + 1
    assert not waiting[0].done()
    flight.leave(numbers[1], is_silent=False)
    assert await waiting[0] == MOST + 2


async def test_one_that_is_cancelled_with_a_place_gives_it_back() -> None:
    flight = BindingsInFlight()
    numbers = [await flight.enter(0) for _ in range(MOST)]
    waiting = [asyncio.create_task(flight.enter(10)) for _ in range(2)]
    await asyncio.sleep(0)
    flight.leave(numbers[0], is_silent=False)
    waiting[1].cancel()
    assert await waiting[0] == MOST + 1


async def test_a_round_without_answers_halves_the_number_once() -> None:
    flight = BindingsInFlight()
    seen = []
    for _ in range(8):
        for number in [await flight.enter(0) for _ in range(flight.most)]:
            flight.leave(number, is_silent=True)
        seen.append(flight.most)
    assert seen == [50, 25, 12, 6, 3, 1, FEWEST, FEWEST]


async def test_answers_bring_the_number_back() -> None:
    flight = BindingsInFlight()
    for _ in range(2):
        flight.leave(await flight.enter(0), is_silent=True)
    for _ in range(6_000):
        flight.leave(await flight.enter(0), is_silent=False)
    assert flight.most == MOST
