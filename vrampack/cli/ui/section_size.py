"""How much of a page a node takes, computed when the cluster is read, so that 5,000 nodes are paged without visiting every pod."""

from __future__ import annotations

from html import escape

from vrampack.cli.explain.cluster import NodeWithHolds

SHOWN_PODS = 4
"""How many pods of a card a page of many nodes shows. The node's own page has all."""
NODE_BYTES, CARD_BYTES, POD_BYTES, BAR_PART_BYTES = 700, 430, 110, 65
"""The bytes of markup for each, as measured plus a tenth; names and other texts are added."""


def estimate_section_bytes(counted: NodeWithHolds) -> int:
    """An upper bound of the bytes of the node's section on a page of many nodes."""
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
    """The bytes of a text after escaping."""
    return len(escape(text).encode())
