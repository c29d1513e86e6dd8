"""What a piece of a card is worth: dual prices of the cutting-stock problem of a mix of sizes.

The linear program finds the fewest cards that hold the mix when cards may be cut in any pattern of sizes (Gilmore and
Gomory 1961). Its dual gives every size a price such that no pattern of one card is worth more than the card. The rest of
a card is worth the best pattern that still fits: 4 of 16 units are worth nothing if every request takes 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd

MAX_COLUMNS = 400
"""The most patterns to try: with thirty sizes the optimum takes fewer than a hundred."""
TOLERANCE = 1e-7
"""By how much a pattern must be worth more than a card before it is taken."""


def price_sizes(demand: Mapping[int, float], capacity: int) -> Mapping[int, float]:
    """The price of each size, in cards. `demand` is how often each size is requested, `capacity` the size of the card."""
    *_, prices = price_in_steps(demand, capacity)
    return prices


def price_in_steps(demand: Mapping[int, float], capacity: int) -> Iterator[Mapping[int, float]]:
    """The same, one pattern after another: each step takes at most a few milliseconds, and only the last prices count."""
    sizes = sorted(size for size, weight in demand.items() if 0 < size <= capacity and weight > 0)
    if not sizes:
        yield {}
        return
    program = _Program(sizes, [demand[size] for size in sizes], capacity)
    for _ in range(MAX_COLUMNS):
        yield dict(zip(sizes, program.prices, strict=True))
        if not program.improve():
            return


def value_pieces(prices: Mapping[int, float], capacity: int) -> tuple[float, ...]:
    """What each piece of 0 .. `capacity` units is worth: the best sum of prices that fits into it."""
    values = [0.0] * (capacity + 1)
    for units in range(1, capacity + 1):
        best = values[units - 1]
        for size, price in prices.items():
            if size <= units:
                best = max(best, values[units - size] + price)
        values[units] = best
    return tuple(values)


class _Program:
    """Revised simplex over patterns. In the initial basis each card holds a single size."""

    def __init__(self, sizes: Sequence[int], demand: Sequence[float], capacity: int) -> None:
        step = gcd(*sizes)
        self._sizes = [size // step for size in sizes]
        self._capacity = capacity // step
        count = len(sizes)
        self._inverse = [[0.0] * count for _ in range(count)]
        for row, size in enumerate(self._sizes):
            self._inverse[row][row] = 1.0 / (self._capacity // size)
        self._amounts = [each * self._inverse[row][row] for row, each in enumerate(demand)]

    @property
    def prices(self) -> list[float]:
        """Every pattern costs one card, so a price is the sum of its column of the inverse."""
        return [max(0.0, sum(column)) for column in zip(*self._inverse, strict=True)]

    def improve(self) -> bool:
        """Take one more pattern into the basis; False when no pattern is worth more than a card."""
        pattern = self._find_best_pattern(self.prices)
        if pattern is None:
            return False
        entering = [sum(map(float.__mul__, row, pattern)) for row in self._inverse]
        ratios = [(self._amounts[row] / each, row) for row, each in enumerate(entering) if each > TOLERANCE]
        _, leaving = min(ratios)
        self._pivot(leaving, entering)
        return True

    def _find_best_pattern(self, prices: Sequence[float]) -> list[float] | None:
        values = [0.0] * (self._capacity + 1)
        chosen = [-1] * (self._capacity + 1)
        items = [
            (size, price, index)
            for index, (size, price) in enumerate(zip(self._sizes, prices, strict=True))
            if price > 0
        ]
        for units in range(1, self._capacity + 1):
            best, choice = values[units - 1], -1
            for size, price, index in items:
                if size > units:
                    break
                value = values[units - size] + price
                if value > best:
                    best, choice = value, index
            values[units], chosen[units] = best, choice
        if values[-1] <= 1.0 + TOLERANCE:
            return None
        pattern = [0.0] * len(self._sizes)
        left = self._capacity
        while left > 0:
            if chosen[left] < 0:
                left -= 1
            else:
                pattern[chosen[left]] += 1.0
                left -= self._sizes[chosen[left]]
        return pattern

    def _pivot(self, leaving: int, entering: Sequence[float]) -> None:
        scale = 1.0 / entering[leaving]
        pivot_row = [each * scale for each in self._inverse[leaving]]
        amount = self._amounts[leaving] * scale
        for row, factor in enumerate(entering):
            if row != leaving and factor:
                self._inverse[row] = [a - factor * b for a, b in zip(self._inverse[row], pivot_row, strict=True)]
                self._amounts[row] = max(0.0, self._amounts[row] - factor * amount)
        self._inverse[leaving], self._amounts[leaving] = pivot_row, amount
