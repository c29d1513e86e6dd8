"""Nodes as people and tools see them: gpushare's inspect JSON, extended by what that format cannot express.

`nodes[].devs[].pods[]` keep gpushare's names; uuid, model, health and the rest are additions that its readers skip.
The extender's inspect routes and the command line show this. `usedGPU` is what is not available to other pods: a pod
on no known card counts on every card. `heldGPU` counts every pod once: for a card the pods known to be there, for a node
all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vrampack.cards.card_usage import CardUsage
from vrampack.cards.holding import Hold
from vrampack.cards.node import Card, Node
from vrampack.cards.records import Record


def build_inspection(
    node: Node, holds: Sequence[Hold], usage: Mapping[str, CardUsage] | None = None
) -> dict[str, object]:
    """One node and who holds what there; `holds` in display order.

    `usage`, by uuid, adds the measured use of each card; null if unknown.
    """
    return {
        "name": node.name,
        "totalGPU": node.total_units,
        "usedGPU": node.used_units,
        "heldGPU": count_held_units(node, holds),
        "devs": [_build_card_json(card, holds) | _build_usage_json(card, usage) for card in node.cards],
        "address": node.address,
        "unitMiB": node.unit_mib,
        "legacy": node.legacy,
        "problem": node.problem,
        "unplaced": [_build_pod_json(hold, count_unplaced_units(node, hold)) for hold in holds if hold.unplaced_reason],
    }


def count_held_units(node: Node, holds: Iterable[Hold]) -> int:
    """The units of all these pods, each counted once."""
    return sum(count_unplaced_units(node, hold) if hold.unplaced_reason else sum(hold.units.values()) for hold in holds)


def count_units_on_card(index: int, holds: Iterable[Hold]) -> int:
    """The units of the pods known to be on this card."""
    return sum(hold.units.get(index, 0) for hold in holds if not hold.unplaced_reason)


def count_unplaced_units(node: Node, hold: Hold) -> int:
    """Units of a pod on no known card: what its record says or what it requests, whichever is more.

    A pod that requests whole cards counts with the largest cards of its node, as it cannot hold more.
    """
    record, pod_request = hold.pod.record, hold.pod.request
    recorded = sum(share.units for share in record.shares) if isinstance(record, Record) else 0
    if pod_request is None:
        return recorded
    asked = pod_request.asked_units
    if pod_request.card_request.whole and not recorded:
        asked = max(
            asked, sum(sorted((card.units for card in node.cards), reverse=True)[: pod_request.card_request.count])
        )
    return max(recorded, asked)


def _build_card_json(card: Card, holds: Sequence[Hold]) -> dict[str, object]:
    return {
        "id": card.index,
        "totalGPU": card.units,
        "usedGPU": card.used_units,
        "heldGPU": count_units_on_card(card.index, holds),
        "pods": [_build_pod_json(hold, hold.units[card.index]) for hold in holds if card.index in hold.units],
        "uuid": card.uuid,
        "model": card.model,
        "memoryMiB": card.memory_mib,
        "healthy": card.healthy,
        **({"reason": card.reason} if card.reason else {}),
        "cordoned": card.cordoned,
        "overcommitted": card.is_overcommitted,
        **build_instances_json(card),
    }


def build_instances_json(card: Card) -> dict[str, object]:
    """How many limits its back end can hold on it, and how many more; empty if it can hold any number."""
    room = card.instances
    return {} if room is None else {"instances": room.most, "freeInstances": room.free}


def _build_usage_json(card: Card, usage: Mapping[str, CardUsage] | None) -> dict[str, object]:
    if usage is None:
        return {}
    known = usage.get(card.uuid or "")
    return {
        "reallyUsed": None
        if known is None
        else {"usedMiB": known.used_mib, "peakMiB": known.peak_mib, "smPercent": known.sm_percent}
    }


def _build_pod_json(hold: Hold, units: int) -> dict[str, object]:
    return {
        "name": hold.pod.name,
        "namespace": hold.pod.namespace,
        "usedGPU": units,
        "uid": hold.pod.uid,
        "state": hold.state,
        "unplaced": hold.unplaced_reason,
    }
