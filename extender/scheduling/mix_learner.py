"""Learns which requests the cluster gets, and renews the forecast of the policies that look ahead.

Every pod that asks for cards is counted once, when the watch first shows it. A forecast takes tens of milliseconds, so it is
computed in steps between which the loop runs, and so are the ranks of all known requests; until they are complete, the engine
ranks by the previous forecast.
"""

from __future__ import annotations

import asyncio

from extender.state.ledger import Ledger
from policies.engine.engine import Engine
from policies.mix.forecast import Forecast
from policies.mix.request_mix import LearnedMix

PODS_PER_SLICE = 500
"""Pods counted between two yields to the event loop: about a millisecond."""


class MixLearner:
    """One for each engine. Start `run` when all pods are listed."""

    def __init__(self, ledger: Ledger, engine: Engine) -> None:
        self._ledger = ledger
        self._engine = engine
        self._learned: LearnedMix | None = None
        """None before the first list: its pods are counted together."""
        self._wake_up = asyncio.Event()

    def on_pod_added(self, uid: str) -> None:
        """A pod that is not bound was seen for the first time."""
        if self._learned is not None:
            self._count_pod(self._learned, uid)
            if self._learned.is_forecast_due and self._engine.has_policy_that_looks_ahead:
                self._wake_up.set()

    def on_policy_changed(self) -> None:
        """Another policy is in force, which may look ahead."""
        self._wake_up.set()

    async def run(self) -> None:
        """Count the existing pods, then renew the forecast whenever enough new ones have come, until cancelled."""
        self._learned = learned = LearnedMix()
        for position, uid in enumerate([pod.uid for pod in self._ledger.list_pods()], 1):
            self._count_pod(learned, uid)
            if position % PODS_PER_SLICE == 0:
                await asyncio.sleep(0)
        while True:
            if learned.is_forecast_due and self._engine.has_policy_that_looks_ahead:
                await self._renew_forecast(learned)
            self._wake_up.clear()
            await self._wake_up.wait()

    async def _renew_forecast(self, learned: LearnedMix) -> None:
        cards = self._engine.count_cards()
        forecast = Forecast(learned.take_mix(), cards)
        for _ in forecast.price_cards(cards):
            await asyncio.sleep(0)
        for _ in self._engine.adopt_forecast(forecast):
            await asyncio.sleep(0)

    def _count_pod(self, learned: LearnedMix, uid: str) -> None:
        pod = self._ledger.get_pod(uid)
        if pod is not None and pod.request is not None and pod.request.card_request.is_valid:
            learned.count_request(self._engine.build_mixed_request(pod.request))
