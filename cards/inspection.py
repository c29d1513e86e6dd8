"""What is shown of nodes to people and tools: gpushare's inspect JSON, with what that one cannot say added.

`nodes[].devs[].pods[]` keep gpushare's names; uuid, model, health and the rest are additions that its readers skip.
The extender's inspect routes and the command line show this one form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cards.holding import Hold
from cards.node import Card, Node


def inspection(node: Node, holds: Sequence[Hold]) -> dict[str, object]:
    """One node and who holds what there; `holds` in the order in which they are shown."""
    return {
        "name": node.name,
        "totalGPU": node.total_units,
        "usedGPU": node.used_units,
        "devs": [_card(card, holds) for card in node.cards],
        "address": node.address,
        "unitMiB": node.unit_mib,
        "legacy": node.legacy,
        "problem": node.problem,
        "unplaced": [_pod(hold, hold.pod.ask.request.units if hold.pod.ask else 0) for hold in _unplaced(holds)],
    }


def _card(card: Card, holds: Iterable[Hold]) -> dict[str, object]:
    return {
        "id": card.index,
        "totalGPU": card.units,
        "usedGPU": card.used_units,
        "pods": [_pod(hold, hold.units[card.index]) for hold in holds if card.index in hold.units],
        "uuid": card.uuid,
        "model": card.model,
        "memoryMiB": card.memory_mib,
        "healthy": card.healthy,
        "cordoned": card.cordoned,
        "overcommitted": card.is_overcommitted,
    }


def _pod(hold: Hold, units: int) -> dict[str, object]:
    return {
        "name": hold.pod.name,
        "namespace": hold.pod.namespace,
        "usedGPU": units,
        "uid": hold.pod.uid,
        "state": hold.state,
        "unplaced": hold.unplaced,
    }


def _unplaced(holds: Iterable[Hold]) -> list[Hold]:
    return [hold for hold in holds if hold.unplaced]
