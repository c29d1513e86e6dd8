"""A pod's limits changed while it runs: whether what the watch shows may take the place of what the fence let through.

The fence judged one allocation: these cards, so many units, no limit above what they stand for. The watch may lag behind
it, or show a record that was corrected since as it was before; later it shows what somebody changed. It is followed only
where it says the same cards and units, so that all that can differ is the limits, and where the fence would pass them.
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
    """Whether every container has its cards and units as it was admitted, and limits that it may have."""
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
