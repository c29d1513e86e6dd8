"""What a policy may know besides the node and the request: the usual requests, and what hosts have left."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from policies.mix.forecast import Forecast
from policies.mix.request_mix import RequestMix
from vrampack.cards.host_room import HostResources


class PolicyWeights(BaseModel):
    """The base of the models of weights: numbers that operators may change, each with a bound and a sentence. This base has none."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Outlook(NamedTuple):
    """The outlook for one request. Policies that only look at cards ignore it."""

    forecast: Forecast
    hosts: Mapping[str, HostResources]
    """What hosts have left, by node name, rounded down; without the nodes of which it is unknown."""
    request_host: HostResources | None
    """What the request takes of its host; None if unknown."""
    leftovers: Mapping[tuple[int, int], int] = MappingProxyType({})
    """How many used cards there are, by their units and free units; may lag a little behind the nodes."""
    weights: PolicyWeights | None = None
    """The policy's weights, if a profile changes them; None: its own."""


NO_OUTLOOK = Outlook(Forecast(RequestMix(), {}), {}, None)
"""The outlook when nothing is known."""
