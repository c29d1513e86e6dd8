"""What a policy knows besides nodes and request in a newly started extender: the mix of the existing pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from policies.engine.hardware_index import HardwareIndex
from policies.mix.forecast import Forecast, build_forecast
from policies.mix.request_mix import LearnedMix
from policies.outlook import NO_OUTLOOK, Outlook
from policies.registry import POLICIES
from vrampack.cards.node import Node
from vrampack.cards.request import PodRequest
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.cli.explain.cluster import ExplainedCluster


def build_outlook(cluster: ExplainedCluster, policy: TunedPolicy, pod_request: PodRequest) -> Outlook:
    """The outlook for this pod. An extender that has run for longer may have seen other pods, so its forecast may differ."""
    if not POLICIES[policy.name].TRAITS.looks_ahead:
        return NO_OUTLOOK
    nodes = [seen.node for seen in cluster.nodes.values()]
    rooms = cluster.hosts.rooms
    request_host = None if pod_request.host is None else rooms.round_up(pod_request.host)
    return Outlook(_build_forecast(cluster, nodes), rooms.rooms, request_host, _count_leftovers(nodes))


def _build_forecast(cluster: ExplainedCluster, nodes: Iterable[Node]) -> Forecast:
    hardware, learned = HardwareIndex(), LearnedMix()
    for node in nodes:
        hardware.put_node(node.name, node)
    for request in cluster.requests:
        if request.card_request.is_valid:
            learned.count_request(hardware.build_mixed_request(request, cluster.hosts.rooms))
    return (
        build_forecast(learned.take_mix(), hardware.count_cards()) if learned.is_forecast_due else NO_OUTLOOK.forecast
    )


def _count_leftovers(nodes: Iterable[Node]) -> Mapping[tuple[int, int], int]:
    cards = [card for node in nodes for card in node.placeable_cards if card.is_usable]
    return Counter((card.units, card.free_units) for card in cards if 0 < card.used_units < card.units)
