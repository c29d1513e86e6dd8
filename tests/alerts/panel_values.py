"""What a panel of a dashboard shows: its query with Grafana's variables filled in, asked of Prometheus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan

from dashboards.panels import RATE, SOURCES, Dashboard, Panel
from tests.alerts.monitoring_stack import INTERVAL_SECONDS, MonitoringStack
from tests.alerts.panel_records import Labels, PanelRecord, Points, SeriesRecord

WINDOW_SECONDS = 60
"""What `$__rate_interval` is here: longer than a scenario, so that a rate is all that was counted, divided by it."""
ROUNDING = 1e-9
EXTRAPOLATION = 0.15
"""`rate` takes half an interval more at both ends than it has seen; what it has seen is a few seconds."""
SCRAPES = "min(count_over_time(up[1h]))"
"""Of the target that was scraped least."""
LASTING_SCRAPES = 12
"""For which a panel has to stay equal. In a cluster that is six minutes."""


@dataclass(frozen=True, slots=True)
class Between:
    """What is known of a number: these bounds, which belong to it."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


Expected = Mapping[Labels, float | Between]
"""By the labels of the series."""


def expect_rate(count: float) -> Between:
    """The rate of a counter that has risen by so much since Prometheus first saw it, or came with it."""
    rate = count / WINDOW_SECONDS
    return Between(rate * (1 - EXTRAPOLATION), rate * (1 + EXTRAPOLATION))


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A panel that was equal to what was counted."""

    expected: Expected
    shown: Mapping[Labels, float]
    scrapes: int
    """Until then."""
    seconds: float
    """Since the scenario began."""

    def list_deviations(self, drawn: Mapping[Labels, Points]) -> list[tuple[Labels, float, float]]:
        """Points since then that are not equal, and of series that were not expected. A missed scrape has no point.

        Of rates the last point alone counts: what `rate` adds at the ends shrinks with what it has seen.
        """
        return [
            (labels, at, value)
            for labels, points in drawn.items()
            for at, value in (points[-1:] if isinstance(self.expected.get(labels), Between) else points)
            if at > self.seconds
            and not isnan(value)
            and not (labels in self.expected and _is_equal(value, self.expected[labels]))
        ]


class PanelValues:
    """The panels of one dashboard, with all variables at `All`."""

    def __init__(self, dashboard: Dashboard, monitoring: MonitoringStack) -> None:
        self._dashboard = dashboard
        self._panels = {panel.title: panel for panel in dashboard.panels}
        self._monitoring = monitoring
        self._found: dict[str, _Comparison] = {}
        """The last of each panel."""

    async def read(self, title: str) -> Mapping[Labels, float]:
        """What is drawn: NaN, the percentile of no calls, is not."""
        values = await self._monitoring.query_vector(self._fill_query(self._panels[title]))
        return {labels: value for labels, value in values.items() if not isnan(value)}

    async def wait_until_equal(self, title: str, expected: Expected) -> None:
        """Wait until exactly these series have these values."""
        shown: Mapping[Labels, float] = {}

        async def is_equal() -> bool:
            nonlocal shown
            shown = await self.read(title)
            return _is_expected(shown, expected)

        before = await self._count_scrapes()
        await self._monitoring.wait_until(is_equal, lambda: f"{title}: {shown}, not {expected}")
        seconds = self._monitoring.measure_seconds()
        self._found[title] = _Comparison(expected, shown, await self._count_scrapes() - before, seconds)

    async def record_what_lasts(self) -> None:
        """All values that were waited for still hold some scrapes later, and are recorded for the pictures."""
        await self._monitoring.wait_until_sampled(f"{SCRAPES} >= {await self._count_scrapes() + LASTING_SCRAPES}")
        scenario = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].partition(" ")[0]
        for title, found in self._found.items():
            panel = self._panels[title]
            drawn = await self._monitoring.query_range(self._fill_query(panel), step_seconds=INTERVAL_SECONDS)
            series = [
                SeriesRecord(labels, found.shown[labels], str(found.expected[labels]), drawn[labels])
                for labels in sorted(found.expected)
            ]
            deviations = found.list_deviations(drawn)
            assert deviations == [], f"{title}: {deviations} since {found.seconds:.2f} s, not {found.expected}"
            PanelRecord(self._dashboard.uid, title, panel.query, scenario, found.scrapes, series).write()

    def _fill_query(self, panel: Panel) -> str:
        query = panel.chosen_query.replace(RATE, f"{WINDOW_SECONDS}s")
        for name in (*SOURCES, *self._dashboard.variables):
            query = query.replace(f"${name}", ".*")
        return query

    async def _count_scrapes(self) -> int:
        return int((await self._monitoring.query_vector(SCRAPES))[()])


def _is_expected(shown: Mapping[Labels, float], expected: Expected) -> bool:
    """Whether exactly these series have these values."""
    return shown.keys() == expected.keys() and all(_is_equal(shown[labels], expected[labels]) for labels in expected)


def _is_equal(value: float, wanted: float | Between) -> bool:
    if isinstance(wanted, Between):
        return wanted.low <= value <= wanted.high
    return abs(value - wanted) <= ROUNDING * abs(wanted)
