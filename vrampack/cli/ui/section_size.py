"""How much of a page a node takes, known when the cluster is read: a page of 5,000 nodes is cut without looking at every pod."""

from __future__ import annotations

from html import escape

from vrampack.cli.explain.cluster import NodeWithHolds

SHOWN_PODS = 4
"""Of a card, on a page of many nodes. The node's own page has all."""
NODE_BYTES, CARD_BYTES, POD_BYTES, BAR_PART_BYTES = 700, 430, 110, 65
"""The markup of each, measured, with a tenth more; names and other texts come on top."""


def estimate_section_bytes(counted: NodeWithHolds) -> int:
    """No less than what the node's section takes on a page of many nodes."""
    node = counted.node
    size = NODE_BYTES + 8 * len(node.name) + _count_escaped(node.problem)
    size += sum(CARD_BYTES + _count_escaped(card.model) for card in node.cards)
    shown = dict.fromkeys((card.index for card in node.cards), SHOWN_PODS)
    unplaced = SHOWN_PODS
    for hold in counted.holds:
        pod_size = POD_BYTES + 2 * (len(hold.pod.namespace) + len(hold.pod.name))
        if hold.unplaced_reason:
            size += BAR_PART_BYTES * len(hold.units) + pod_size * (unplaced > 0)
            unplaced -= 1
            continue
        for index in hold.units:
            size += BAR_PART_BYTES + pod_size * (shown[index] > 0)
            shown[index] -= 1
    return size


def _count_escaped(text: str) -> int:
    """Bytes of a text as it is in a page."""
    return len(escape(text).encode())
