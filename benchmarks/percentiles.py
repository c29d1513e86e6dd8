"""Reduces many measurements to one figure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def compute_percentile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that at least `fraction` of all do not exceed: the nearest rank, without interpolation."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def compute_median(values: Sequence[float]) -> float:
    return compute_percentile(values, 0.5)
