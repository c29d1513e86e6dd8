"""Where pods without a readable record really are, from the device ids that kubelet has for them.

The extender counts such a pod on every card of its node until this says where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.kubelet.device_ids import count_readable_units
from vrampack.agent.kubelet.podresources import DeviceAllocation
from vrampack.cards.node import CardFacts, Share
from vrampack.cards.records import Record


def needs_observation(pod: LocalPod, cards: Iterable[CardFacts]) -> bool:
    """Whether its record does not say which of these cards it is on."""
    record = pod.pod.record
    if not pod.is_active or not isinstance(record, Record):
        return pod.is_active
    uuids, indices = {card.uuid for card in cards}, {card.index for card in cards}
    return not all(share.uuid in uuids if share.uuid is not None else share.index in indices for share in record.shares)


def observe_pods(
    pods: Iterable[LocalPod], allocations: Iterable[DeviceAllocation], cards: Iterable[CardFacts]
) -> dict[str, tuple[Share, ...]]:
    """By pod uid, what the ids of those pods stand for; a pod whose ids name no card of ours is left out."""
    known = {card.uuid for card in cards}
    units: dict[tuple[str, str], Counter[str]] = {}
    for each in allocations:
        units.setdefault((each.namespace, each.pod_name), Counter()).update(count_readable_units(each.device_ids))
    found: dict[str, tuple[Share, ...]] = {}
    for pod in pods:
        mine = units.get((pod.pod.namespace, pod.pod.name), Counter())
        if mine and mine.keys() <= known:
            found[pod.pod.uid] = tuple(Share(given, uuid=uuid) for uuid, given in sorted(mine.items()))
    return found
