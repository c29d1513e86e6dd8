"""The events that the extender writes on its own pod."""

from __future__ import annotations

from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from tests.fakes.api import FakeKubeApi
from vrampack.cards.pod import Pod


class OwnEvents(ExtenderEventRecorder):
    """An event writer that only remembers what it was asked for."""

    def __init__(self, metrics: ExtenderMetrics) -> None:
        super().__init__(FakeKubeApi(), metrics, clock=lambda: 0.0, now=lambda: 0.0)
        self.asked: list[tuple[str, str, str, bool]] = []

    def record_changing_event(self, pod: Pod, reason: str, text: str, *, is_warning: bool) -> None:
        self.asked.append((pod.name, reason, text, is_warning))
