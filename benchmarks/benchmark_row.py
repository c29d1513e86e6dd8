"""One row of the table that `make bench` prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One figure, with its goal and floor."""

    key: str
    """Stable, e.g. `verbs-5000-p50`."""
    what: str
    command: str
    """The command that reproduces this row, e.g. `python -m benchmarks verbs --nodes 5000`."""
    figure: float | None
    """None: not measured, and the table is incomplete."""
    unit: str
    """ms, us, s, MB, x, pods/s."""
    goal: float | None
    floor: float | None
    """None: the row is only shown."""
    larger_is_better: bool = False
    note: str = ""
    """What to print beside the figure, e.g. CPU per pod."""

    @property
    def verdict(self) -> str:
        """PASS: goal met. NOT REACHED: only the floor. FAIL: not even that. MISSING: not measured. `-`: only shown."""
        if self.figure is None:
            return "MISSING"
        if self.floor is None:
            return "-"
        if self.goal is not None and self._reaches(self.goal):
            return "PASS"
        return "NOT REACHED" if self._reaches(self.floor) else "FAIL"

    def _reaches(self, bound: float) -> bool:
        assert self.figure is not None
        return self.figure >= bound if self.larger_is_better else self.figure <= bound
