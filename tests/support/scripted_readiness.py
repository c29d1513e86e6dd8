"""A service that is ready until a test says why it is not."""

from __future__ import annotations

from extender.state.sync import Freshness, ReadinessCheck


class ScriptedReadiness(ReadinessCheck):
    """Ready while `problem` is empty, whatever the lists are."""

    def __init__(self) -> None:
        super().__init__(Freshness(clock=lambda: 0.0, now=lambda: 0.0, stale_seconds=0.0))
        self.problem = ""

    def find_unready_reason(self) -> str:
        return self.problem
