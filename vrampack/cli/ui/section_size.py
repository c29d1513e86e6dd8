"""How much of a page a node takes, known when the cluster is read: a page of 5,000 nodes is cut without looking at every pod."""

from __future__ import annotations

from vrampack.cli.explain.cluster import NodeWithHolds

SHOWN_PODS = 4
"""Of a card, on a page of many nodes. The node's own page has all."""
NODE_BYTES = 1500
CARD_BYTES = 1000
POD_BYTES = 150
"""The markup around the names of each."""


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
            size += pod_size * (unplaced > 0)
            unplaced -= 1
            continue
        for index in hold.units:
            size += pod_size * (shown[index] > 0)
            shown[index] -= 1
    return size


def _count_escaped(text: str) -> int:
    """Of any text: UTF-8 takes four bytes for a character, and markup at most six (`&#34;` has five)."""
    return 6 * len(text)
