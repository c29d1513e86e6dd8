"""The cards of one pod: how many units it holds on each and what each container may use.

An `Allocation` is decided once, at bind, and written down as the pod's record; see `records.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vrampack.cards.node import Card, Node, Share
from vrampack.cards.request import PodRequest
from vrampack.cards.units import compute_limit_mib, format_memory


@dataclass(frozen=True, slots=True)
class ContainerShare:
    """One container's own units on one card, and its limit there; `mib` is None if none can be enforced."""

    index: int
    units: int
    uuid: str | None
    mib: int | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one pod gets on one node."""

    cards: tuple[Share, ...]
    """What the ledger counts on each card, sorted by index."""
    containers: tuple[tuple[str, tuple[ContainerShare, ...]], ...]
    """The shares of every requesting container, init containers included, by name, each sorted by card index."""

    @property
    def card_indices(self) -> list[int]:
        return [share.index for share in self.cards if share.index is not None]


def describe_allocation(allocation: Allocation, node: Node) -> str:
    """For the pod's owner: units, GiB and models of its cards, and what each container may use of one."""
    units, indices = sum(share.units for share in allocation.cards), allocation.card_indices
    held = f"{units} {'unit' if units == 1 else 'units'} ({format_memory(units, node.unit_mib)})"
    models = ", ".join(sorted({card.model for card in node.cards if card.index in indices and card.model}))
    cards = ",".join(map(str, indices)) + (f" ({models})" if models else "")
    limits = [
        f"{name} {' or '.join(map(str, sorted(mib)))} MiB"
        for name, shares in allocation.containers
        if (mib := {share.mib for share in shares if share.mib is not None})
    ]
    return f"{held} on card {cards} of node {node.name}" + (
        f"; limits on a card: {', '.join(limits)}" if limits else ""
    )


def allocate_cards(
    node: Node, chosen_cards: Sequence[Card], pod_request: PodRequest, *, reserve_mib: int = 0
) -> Allocation:
    """The allocation of `pod_request` on exactly these cards of `node`. The caller makes sure that it fits there."""
    chosen_cards = sorted(chosen_cards, key=lambda card: card.index)
    request = pod_request.card_request
    allocated = tuple(
        Share(
            request.get_taken_units(card.units),
            card.uuid,
            card.index,
            whole=request.whole,
            card_units=None if node.legacy else card.units,
            amounts=request.amounts,
        )
        for card in chosen_cards
    )
    containers = []
    for container in pod_request.containers:
        units = container.units // request.count
        shares = tuple(_build_share(node, card, units, pod_request, reserve_mib) for card in chosen_cards)
        containers.append((container.name, shares))
    return Allocation(allocated, tuple(containers))


def _build_share(node: Node, card: Card, units: int, pod_request: PodRequest, reserve_mib: int) -> ContainerShare:
    given = card.units if pod_request.card_request.whole else units
    mib = None if node.legacy else compute_limit_mib(card.memory_mib, given, card.units, reserve_mib)
    return ContainerShare(card.index, units, card.uuid, mib)
