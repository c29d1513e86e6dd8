"""Which unbound pods have a place, by brute force: every pod against every node, card by card.

Each pod is judged for itself, on the room there is now: two pods may have the same place.
"""

from collections import defaultdict
from collections.abc import Iterable

from tests.auditor.cards import NodeCards, read_node
from tests.auditor.holdings import find_holdings
from tests.auditor.pods import AuditedPod, read_pod
from tests.auditor.raw import Raw
from tests.auditor.terms import Terms

DEFAULT_TERMS = Terms()


def find_placeable_pods(pods: Iterable[Raw], nodes: Iterable[Raw], *, terms: Terms = DEFAULT_TERMS) -> list[str]:
    """Names of the unbound pods that some node could take. Nodes are taken as healthy and open to every pod."""
    seen = [read_pod(pod, terms) for pod in pods]
    on_node: defaultdict[str, list[AuditedPod]] = defaultdict(list)
    for pod in seen:
        if pod.is_live:
            on_node[pod.node].append(pod)
    rooms = [_room(node, on_node[node.name]) for node in (read_node(raw, terms) for raw in nodes)]
    return sorted(pod.name for pod in seen if not pod.node and any(_fits(pod, room) for room in rooms))


def _room(node: NodeCards, live: list[AuditedPod]) -> list[tuple[int, int]]:
    """Units and free units of each card."""
    return [
        (card.units, card.units - sum(held.units for held in find_holdings(node, card, live))) for card in node.cards
    ]


def _fits(pod: AuditedPod, room: list[tuple[int, int]]) -> bool:
    each = -(-pod.ask.units // pod.ask.cards)
    enough = [free for units, free in room if free >= each and (free == units or not pod.ask.whole)]
    return not pod.ask.faults and len(enough) >= pod.ask.cards
