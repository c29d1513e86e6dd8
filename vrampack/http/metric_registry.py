"""The registry behind a /metrics page: each metric is a line of name, help text and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BUCKETS = tuple(0.0005 * 2**power for power in range(14))
"""Seconds: 0.5 ms doubling to 4 s."""
_Series: TypeAlias = Iterable["str | tuple[str, ...]"]


class MetricRegistry(CollectorRegistry):
    """A registry to which metrics are added by kind.

    `series` has the values of the labels that are known before the first event. These counters begin at 0: Prometheus sees no
    increase in a series that begins with 1.
    """

    def add_counter(self, name: str, text: str, labels: Sequence[str] = (), *, series: _Series = ()) -> Counter:
        added = Counter(name, text, labels, registry=self)
        _begin_series(added, series)
        return added

    def add_gauge(self, name: str, text: str, labels: Sequence[str] = (), *, series: _Series = ()) -> Gauge:
        added = Gauge(name, text, labels, registry=self)
        _begin_series(added, series)
        return added

    def add_histogram(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float] = BUCKETS
    ) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self)


def _begin_series(metric: Counter | Gauge, series: _Series) -> None:
    for values in series:
        metric.labels(*((values,) if isinstance(values, str) else values))
