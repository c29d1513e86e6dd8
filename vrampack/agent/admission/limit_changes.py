"""Decides whether changed limits that the watch shows for a running pod may replace those that the fence admitted.

The fence admitted one allocation: these cards, this many units, no limit above what they stand for. The watch may lag behind
it, or show an old version of a record that was corrected since; later it shows changes. The agent follows it only if it has
the same cards and units, so that only the limits can differ, and if the fence would admit those.
"""

from __future__ import annotations

from collections.abc import Iterable

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.admission.fence import check_limits
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.cards.grants import read_grant
from vrampack.cards.node import CardFacts
from vrampack.cards.records import RecordError


def is_limit_change_accepted(current: LocalPod, admitted: LocalPod, cards: Iterable[CardFacts]) -> bool:
    """Whether every container still has the cards and units with which it was admitted, and limits that it may have."""
    ask = admitted.pod.request
    if ask is None:
        return False
    by_uuid = {card.uuid or "": card for card in cards}
    try:
        for container in ask.containers:
            grant = read_grant(current.annotations, container.name)
            if grant.units != read_grant(admitted.annotations, container.name).units or grant.units.keys() - by_uuid:
                return False
            check_limits(grant, by_uuid, is_whole=ask.card_request.whole)
    except (RecordError, RefusedStartError):
        return False
    return True
