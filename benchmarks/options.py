"""What `make bench` is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchmarkOptions:
    """The same for every group; a group reads what concerns it."""

    seed: int = 1
    """Of everything that is drawn by chance."""
    nodes: int | None = None
    """Only the rows of this size, where a group has several."""
    shrink: int = 1
    """Divides every size and count. Above 1 the figures say nothing; the tests use it to see that everything runs."""

    def scale_count(self, count: int, minimum: int = 4) -> int:
        """`count`, shrunk."""
        return max(minimum, count // self.shrink) if self.shrink > 1 else count
