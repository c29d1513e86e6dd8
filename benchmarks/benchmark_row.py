"""One row of the table that `make bench` prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One figure beside what it has to meet."""

    key: str
    """Stable, e.g. `verbs-5000-p50`."""
    what: str
    command: str
    """What shows this row alone, e.g. `python -m benchmarks verbs --nodes 5000`."""
    figure: float | None
    """None: not measured, and the table is incomplete."""
    unit: str
    """ms, us, s, MB, x, pods/s."""
    goal: float | None
    floor: float | None
    """None: a row that is only shown."""
    larger_is_better: bool = False
    note: str = ""
    """What belongs beside the figure, e.g. CPU per pod."""

    @property
    def verdict(self) -> str:
        """PASS: goal met. NOT REACHED: the floor alone. FAIL: not even that. MISSING: not measured. `-`: only shown."""
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
