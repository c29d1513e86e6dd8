"""What a policy may know beside the node and the request: the usual requests, and what hosts have left."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from policies.mix.forecast import Forecast
from policies.mix.request_mix import RequestMix
from policies.weights import PolicyWeights
from vrampack.cards.host_room import HostResources


class Outlook(NamedTuple):
    """For one request. Policies that look at nothing but cards ignore it."""

    forecast: Forecast
    hosts: Mapping[str, HostResources]
    """What hosts have left, by node name, rounded down; a node that is not here is one of which that is not known."""
    request_host: HostResources | None
    """What the request takes of its host."""
    leftovers: Mapping[tuple[int, int], int] = MappingProxyType({})
    """How many used cards there are, by their units and free units; a little behind what is on the nodes."""
    weights: PolicyWeights | None = None
    """Those that a profile sets of the policy's; None: its own."""


NO_OUTLOOK = Outlook(Forecast(RequestMix(), {}), {}, None)
"""Nothing is known."""
