"""Formats an explanation for a terminal: a headline, a table of cards, the findings, the next step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from vrampack.cli.explain.schema import CardView, Explanation, NodeView, PlacementView, WorkloadExplanation
from vrampack.cli.inspect.text_columns import align_columns, replace_unprintable

DEFAULT_MAX_ROWS = 20
"""Rows without `--all`, so that the whole text fits on a screen."""

MAX_GROUPS = 5
"""Lines about nodes that the pod may not use."""

TextRow = tuple[str, ...]


def render(explanation: Explanation, *, max_rows: int | None = DEFAULT_MAX_ROWS, max_width: int | None = None) -> str:
    """The whole text. `max_rows` None: every row. `max_width` is that of the table's lines."""
    blocks = [[explanation.headline]]
    if explanation.placement is not None:
        blocks.append(_format_placement(explanation.placement))
    blocks.append(_format_nodes(explanation, max_rows, max_width))
    last = list(explanation.findings)
    if explanation.next:
        last.append(f"Next: {explanation.next.removesuffix('.')}.")
    blocks.append(last)
    return "\n\n".join("\n".join(map(replace_unprintable, block)) for block in blocks if block) + "\n"


def render_workload(
    explanation: WorkloadExplanation, *, max_rows: int | None = DEFAULT_MAX_ROWS, max_width: int | None = None
) -> str:
    """The workload, its pods, and the explanation of the one that waits."""
    rows = [(pod.name, pod.state, pod.node or "-") for pod in explanation.pods[:max_rows]]
    table = (
        align_columns([("POD", "STATE", "NODE"), *rows], right_columns=(), max_width=max_width).splitlines()
        if rows
        else []
    )
    if len(rows) < len(explanation.pods):
        table.append(f"{len(explanation.pods) - len(rows)} more pods: --all shows them.")
    last = list(explanation.findings)
    if explanation.next:
        last.append(f"Next: {explanation.next}.")
    blocks = [[explanation.headline], table, last]
    text = "\n\n".join("\n".join(map(replace_unprintable, block)) for block in blocks if block) + "\n"
    if explanation.waiting is None:
        return text
    return f"{text}\n{render(explanation.waiting, max_rows=max_rows, max_width=max_width)}"


def _format_placement(placement: PlacementView) -> list[str]:
    rows = [(placement.node, str(card.index), str(card.units), card.uuid or "-") for card in placement.cards]
    lines = align_columns([("NODE", "CARD", "UNITS", "UUID"), *rows], right_columns=(1, 2)).splitlines() if rows else []
    if placement.limits_mib:
        limits = [(name, str(mib)) for name, mib in placement.limits_mib.items()]
        lines += ["", *align_columns([("CONTAINER", "LIMIT(MiB)"), *limits], right_columns=(1,)).splitlines()]
    return lines


def _format_nodes(explanation: Explanation, limit: int | None, max_width: int | None) -> list[str]:
    excluded = [node for node in explanation.nodes if node.excluded]
    nodes = [node for node in explanation.nodes if limit is None or not node.excluded]
    rows = [row for node in nodes for row in _list_rows(node, is_joined=limit is not None)]
    shown = _select_nearest(rows, limit, is_one_card=explanation.request is None or explanation.request.count == 1)
    heading = ("NODE", "CARD", "FREE/TOTAL", "MISSING", "WHY")
    table = [heading, *(_build_row(node, cards) for node, cards in shown)]
    lines = align_columns(table, right_columns=(1, 2, 3), max_width=max_width).splitlines() if shown else []
    if len(shown) < len(rows):
        lines.append(f"{len(rows) - len(shown)} more rows: --all shows them.")
    lines += _format_excluded(excluded)
    without = explanation.nodes_without_memory
    if without:
        lines.append(f"{without} {'node has' if without == 1 else 'nodes have'} no shareable GPU memory.")
    return lines


def _format_excluded(nodes: Sequence[NodeView]) -> list[str]:
    """A line for each set of obstacles, that of the most nodes first."""
    groups = defaultdict[str, list[str]](list)
    for node in nodes:
        groups["; ".join(node.obstacles)].append(node.name)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    lines = [
        f"{names[0] if len(names) == 1 else f'{len(names)} nodes'} may not be used by the pod: {why}."
        for why, names in ordered[:MAX_GROUPS]
    ]
    rest = sum(len(names) for _, names in ordered[MAX_GROUPS:])
    return [*lines, f"{rest} more nodes may not be used by the pod: --all shows them."] if rest else lines


_NodeRow = tuple[NodeView, tuple[CardView, ...]]
"""Cards that stand together and differ only in their index; none for a node without any."""


def _list_rows(node: NodeView, *, is_joined: bool) -> list[_NodeRow]:
    """Cards whose indices do not follow on each other are not joined: between them a number may be no card."""
    alike = groupby(
        enumerate(node.cards),
        key=lambda at: (_describe_card(at[1]), at[1].index - at[0]) if is_joined else at[1].index,
    )
    return [(node, tuple(card for _, card in cards)) for _, cards in alike] or [(node, ())]


def _select_nearest(rows: list[_NodeRow], limit: int | None, *, is_one_card: bool) -> list[_NodeRow]:
    """The rows to show, in the order of the nodes, which come nearest first.

    For a request for one card they are the nearest cards of all nodes; a request for several needs whole nodes.
    """
    if limit is None or len(rows) <= limit:
        return rows
    order = range(len(rows))
    if is_one_card:
        order = sorted(order, key=lambda at: (_distance(*rows[at]), at))  # type: ignore[assignment]  # any sequence
    return [rows[at] for at in sorted(order[:limit])]


def _distance(node: NodeView, cards: tuple[CardView, ...]) -> tuple[int, int]:
    missing = cards[0].missing_units if cards else None
    if missing is None:
        return 2, 0
    is_usable = cards[0].healthy and not cards[0].cordoned and not node.obstacles
    return (0 if is_usable else 1), missing


def _build_row(node: NodeView, cards: tuple[CardView, ...]) -> TextRow:
    if not cards:
        return node.name, "-", "-", "-", node.problem or node.reason or ""
    first, last = cards[0].index, cards[-1].index
    return node.name, str(first) if first == last else f"{first}-{last}", *_describe_card(cards[0])


def _describe_card(card: CardView) -> TextRow:
    missing = "-" if card.missing_units is None else str(card.missing_units)
    return f"{card.free_units}/{card.total_units}", missing, card.why
