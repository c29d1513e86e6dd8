"""The longest turn of an event loop is found among those that a clock has read."""

from __future__ import annotations

from benchmarks.turn_clock import SHORTEST_SECONDS, LoopTurn, find_longest_ms


def test_the_longest_turn_is_one_that_began_in_the_interval() -> None:
    turns = [LoopTurn(1.0, 0.009), LoopTurn(2.0, 0.003), LoopTurn(3.0, 0.004), LoopTurn(4.1, 0.008)]
    assert find_longest_ms(turns, 2.0, 4.0) == 4.0
    assert find_longest_ms(turns, 3.5, 4.0) == 1000 * SHORTEST_SECONDS
