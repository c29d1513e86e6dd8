"""The options of `make bench`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchmarkOptions:
    """The options, the same for every group; each group reads those that concern it."""

    seed: int = 1
    """The seed of all random choices."""
    nodes: int | None = None
    """Only the rows of this size, if a group has several."""
    shrink: int = 1
    """Divides every size and count. Above 1 the figures mean nothing; the tests use it to check that everything runs."""

    def scale_count(self, count: int, minimum: int = 4) -> int:
        """`count` divided by `shrink`, at least `minimum`."""
        return max(minimum, count // self.shrink) if self.shrink > 1 else count
