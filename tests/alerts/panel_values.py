"""What a panel of a dashboard shows: its query with Grafana's variables filled in, asked of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import pytest

from dashboards.panels import RATE, Dashboard
from tests.alerts.monitoring_stack import MonitoringStack

Labels: TypeAlias = tuple[tuple[str, str], ...]
Expected: TypeAlias = Mapping[Labels, Any]
"""Numbers, or pytest.approx of them."""

WINDOW_SECONDS = 60
"""What `$__rate_interval` is here: longer than a scenario, so that a rate is all that was counted, divided by it."""
ROUNDING = 1e-9
EXTRAPOLATION = 0.15
"""`rate` takes half an interval more at both ends than it has seen; what it has seen is a few seconds."""


def expect_rate(count: float) -> object:
    """The rate of a counter that has risen by so much since Prometheus first saw it, or came with it."""
    return pytest.approx(count / WINDOW_SECONDS, rel=EXTRAPOLATION)


class PanelValues:
    """The panels of one dashboard. With all variables at `All`."""

    def __init__(self, dashboard: Dashboard, monitoring: MonitoringStack) -> None:
        self._panels = {panel.title: panel for panel in dashboard.panels}
        self._variables = {f"${name}": ".*" for name in dashboard.variables}
        self._monitoring = monitoring

    async def read(self, title: str) -> Mapping[Labels, float]:
        query = self._panels[title].query.replace(RATE, f"{WINDOW_SECONDS}s")
        for name, value in self._variables.items():
            query = query.replace(name, value)
        return await self._monitoring.query_vector(query)

    async def wait_for(self, title: str, expected: Expected) -> None:
        """Wait until exactly these series have these values."""
        shown: Mapping[Labels, float] = {}

        async def is_equal() -> bool:
            nonlocal shown
            shown = await self.read(title)
            return shown.keys() == expected.keys() and all(
                value == (pytest.approx(wanted, rel=ROUNDING) if isinstance(wanted, int | float) else wanted)
                for value, wanted in ((shown[labels], expected[labels]) for labels in expected)
            )

        await self._monitoring.wait_until(is_equal, lambda: f"{title}: {shown}, not {expected}")
