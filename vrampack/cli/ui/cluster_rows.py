"""The texts and bars of the cluster's page, which templates print without further computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vrampack.cards.holding import Hold
from vrampack.cards.inspection import count_unplaced_units
from vrampack.cards.node import Card, Node
from vrampack.cli.explain.evaluation import list_card_faults
from vrampack.cli.ui.cluster_reading import NodeOverview
from vrampack.cli.ui.held_elsewhere import UnitRange, compute_free_range
from vrampack.cli.ui.section_size import SHOWN_PODS

BAR_WIDTH = 100


@dataclass(frozen=True, slots=True)
class PodCell:
    """A pod that holds memory of a card."""

    namespace: str
    name: str
    amount: str
    state: str
    """Empty for one that simply runs there."""


@dataclass(frozen=True, slots=True)
class BarPart:
    """A segment of a card's bar, in hundredths of the card."""

    start: float
    width: float
    kind: str
    """A class of style.css: pod-0, pod-1, elsewhere, perhaps."""


@dataclass(frozen=True, slots=True)
class CardRow:
    """One card."""

    index: int
    model: str
    uuid: str
    held: str
    total: str
    free: str
    elsewhere: str
    """Empty if others certainly hold nothing."""
    faults: tuple[str, ...]
    parts: tuple[BarPart, ...]
    pods: tuple[PodCell, ...]
    hidden_pods: int


@dataclass(frozen=True, slots=True)
class NodeSection:
    """One node with its cards."""

    name: str
    address: str
    problem: str
    is_legacy: bool
    held: str
    total: str
    elsewhere: str
    cards: tuple[CardRow, ...]
    unplaced: tuple[PodCell, ...]
    hidden_unplaced: int


def build_node_section(reading: NodeOverview, *, most_pods: int | None = SHOWN_PODS) -> NodeSection:
    """The node for a page, with at most `most_pods` pods of each card; None: all."""
    node, holds = reading.counted.node, reading.counted.holds
    unplaced = [hold for hold in holds if hold.unplaced_reason]
    return NodeSection(
        name=node.name,
        address=node.address,
        problem=node.problem,
        is_legacy=node.legacy,
        held=format_mib(sum(min(card.used_units, card.units) for card in node.cards) * node.unit_mib),
        total=format_mib(node.total_units * node.unit_mib),
        elsewhere=format_elsewhere(reading.elsewhere.on_node, node.unit_mib),
        cards=tuple(_build_card_row(reading, card, most_pods) for card in node.cards),
        unplaced=tuple(_build_unplaced_cell(node, hold) for hold in unplaced[:most_pods]),
        hidden_unplaced=max(0, len(unplaced) - (len(unplaced) if most_pods is None else most_pods)),
    )


def format_mib(mib: int) -> str:
    """`12 GiB`, `12.5 GiB`."""
    return f"{format_gib_number(mib)} GiB"


def format_gib_number(mib: int) -> str:
    return f"{mib / 1024:,.1f}".removesuffix(".0")


def format_mib_range(span: UnitRange, unit_mib: int = 1) -> str:
    """`4 GiB`, or `0 to 4 GiB`."""
    most = format_mib(span.most * unit_mib)
    return most if span.is_exact else f"{format_gib_number(span.least * unit_mib)} to {most}"


def format_elsewhere(span: UnitRange, unit_mib: int = 1) -> str:
    """What others hold; empty if that is certainly nothing."""
    return f"{format_mib_range(span, unit_mib)} held elsewhere" if span.most else ""


def _build_card_row(reading: NodeOverview, card: Card, most_pods: int | None) -> CardRow:
    node = reading.counted.node
    holds = [hold for hold in reading.counted.holds if hold.units.get(card.index)]
    placed = [hold for hold in holds if not hold.unplaced_reason]
    elsewhere = reading.elsewhere.get_card_range(card.index)
    faults = [*list_card_faults(card), *["promised beyond its memory"] * card.is_overcommitted]
    return CardRow(
        index=card.index,
        model=card.model,
        uuid=card.uuid or "",
        held=format_gib_number(card.used_units * node.unit_mib),
        total=format_mib(card.units * node.unit_mib),
        free=format_mib_range(compute_free_range(card, elsewhere), node.unit_mib),
        elsewhere=format_elsewhere(elsewhere, node.unit_mib),
        faults=tuple(faults),
        parts=_build_parts(card, [hold.units[card.index] for hold in holds], elsewhere),
        pods=tuple(_build_pod_cell(node, hold, hold.units[card.index]) for hold in placed[:most_pods]),
        hidden_pods=max(0, len(placed) - (len(placed) if most_pods is None else most_pods)),
    )


def _build_parts(card: Card, held: Sequence[int], elsewhere: UnitRange) -> tuple[BarPart, ...]:
    """What listed pods hold, then what others certainly hold, then what they may hold; never more than the card."""
    lengths = [(units, f"pod-{at % 2}") for at, units in enumerate(held[:BAR_WIDTH])]
    lengths += [(elsewhere.least, "elsewhere"), (elsewhere.most - elsewhere.least, "perhaps")]
    parts, start = [], 0
    for units, kind in lengths:
        shown = min(units, card.units - start)
        if shown > 0:
            parts.append(BarPart(_to_hundredths(start, card), _to_hundredths(shown, card), kind))
            start += shown
    return tuple(parts)


def _to_hundredths(units: int, card: Card) -> float:
    return round(units * BAR_WIDTH / card.units, 1)


def _build_pod_cell(node: Node, hold: Hold, units: int) -> PodCell:
    state = "" if hold.state == "bound" else hold.state
    return PodCell(hold.pod.namespace, hold.pod.name, format_mib(units * node.unit_mib), state)


def _build_unplaced_cell(node: Node, hold: Hold) -> PodCell:
    return _build_pod_cell(node, hold, count_unplaced_units(node, hold))
