"""What a refused pod's owner is told. Of other pods it has sums alone: no name of a pod, and no other namespace."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from policies.engine.filter_outcome import NearestNode
from vrampack.cards.node import Node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest, PodRequest
from vrampack.cards.units import format_memory

MAX_LISTED = 8
"""Models: their names have up to 96 characters, and an event has 1,000."""


def describe_refusal(  # noqa: PLR0913 - all that the text says
    pod_request: PodRequest,
    nearest: NearestNode,
    node: Node | None,
    *,
    cards: Iterable[tuple[str, int]],
    skipped_nodes: int,
    node_selector: str,
    unit_mib: int,
) -> str:
    """What the pod asks for, what the nearest node lacks, which nodes its scheduler left out, and which cards are large enough.

    `node` is the nearest node as the pod finds it; `cards` are the model and the units of every card of the cluster.
    """
    request = pod_request.card_request
    parts = [
        f"asks for {_describe_request(pod_request, unit_mib)}",
        f"the nearest node is {nearest.name}{_format_models(node)}: {_describe_lack(nearest, node, request)}",
    ]
    if skipped_nodes:
        why = f" ({node_selector})" if node_selector else ""
        nodes = "1 other node with cards was" if skipped_nodes == 1 else f"{skipped_nodes} other nodes with cards were"
        parts.append(f"{nodes} left out by the scheduler itself{why}")
    return "; ".join([*parts, _describe_large_cards(request, cards)])


def _describe_request(pod_request: PodRequest, unit_mib: int) -> str:
    request = pod_request.card_request
    if request.whole:
        units, where = (
            pod_request.asked_units,
            "for a whole card" if request.count == 1 else f"for {request.count} whole cards",
        )
    else:
        units, where = request.units, "on one card" if request.count == 1 else f"on each of {request.count} cards"
    models = f" of {_list_models(request.models)}" if request.models else ""
    return f"{units} {'unit' if units == 1 else 'units'} ({format_memory(units, unit_mib)}) {where}{models}"


def _describe_lack(nearest: NearestNode, node: Node | None, request: CardRequest) -> str:
    if nearest.reason is UnfitReason.TOO_LARGE and node is not None:
        return f"{nearest.reason.value}, at most {max(card.units for card in node.cards)} units"
    if nearest.free_units < 0:
        return str(nearest.reason.value)
    where = "on one card" if request.count == 1 else f"on each of {request.count} cards"
    return f"{nearest.reason.value}, at most {nearest.free_units} free {where}, {request.units - nearest.free_units} missing"


def _format_models(node: Node | None) -> str:
    models = set() if node is None else {card.model for card in node.cards if card.model}
    return f" ({_list_models(models)})" if models else ""


def _describe_large_cards(request: CardRequest, cards: Iterable[tuple[str, int]]) -> str:
    permitted = None if request.rules is None else request.rules.models
    models = {
        model or "unknown model"
        for model, units in cards
        if units >= (request.units or 1) and (permitted is None or model in permitted)
    }
    return f"large enough when empty: {_list_models(models)}" if models else "no card of the cluster is large enough"


def _list_models(models: Collection[str]) -> str:
    shown = sorted(models)[:MAX_LISTED]
    return ", ".join(shown) + (f" and {len(models) - MAX_LISTED} more" if len(models) > MAX_LISTED else "")
