"""What policies that look ahead are told in tests: a mix of requests, its forecast, and hosts."""

from __future__ import annotations

from hypothesis import strategies as st

from policies.mix.forecast import build_forecast
from policies.mix.request_mix import MixedRequest, RequestMix
from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest

MIX = RequestMix(
    {
        MixedRequest(CardRequest(3), HostResources(2000, 4096)): 5.0,
        MixedRequest(CardRequest(5, models=frozenset({"A"})), HostResources(500, 1024)): 2.0,
        MixedRequest(CardRequest(8, count=2), HostResources(8000, 1024)): 1.0,
        MixedRequest(None, HostResources(1000, 1024)): 1.0,
    }
)
FORECAST = build_forecast(MIX, {("A", 8): 4, ("B", 5): 3, ("C", 6): 2})
FREE_ROOM = st.builds(
    HostResources, st.integers(0, 16).map(lambda each: each * 500), st.integers(0, 8).map(lambda each: each * 1024)
)
