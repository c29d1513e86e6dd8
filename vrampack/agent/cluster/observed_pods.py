"""Publishes where pods without a readable record really are, by the device ids that kubelet has for them.

The extender counts such a pod on every card of its node until this annotation says where it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable

from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.own_node import OwnNode
from vrampack.agent.cluster.pod_cache import PodCache
from vrampack.agent.kubelet.device_ids import count_readable_units
from vrampack.agent.kubelet.errors import KubeletError
from vrampack.agent.kubelet.podresources import DeviceAllocation, PodResourcesClient
from vrampack.cards import well_known
from vrampack.cards.node import CardFacts, Share
from vrampack.cards.node_annotations import write_observed
from vrampack.cards.records import Record

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class ObservedPodsPublisher:
    """Writes the Node annotation with the observed pods."""

    def __init__(
        self,
        own_node: OwnNode,
        pod_cache: PodCache,
        pod_resources: PodResourcesClient,
        get_cards: Callable[[], tuple[CardFacts, ...]],
    ) -> None:
        self._own_node = own_node
        self._pod_cache = pod_cache
        self._pod_resources = pod_resources
        self._get_cards = get_cards

    async def publish_pods(self) -> None:
        """Write what kubelet says now. While kubelet does not answer, the annotation stays as it is."""
        cards = self._get_cards()
        pods = [pod for pod in self._pod_cache.list_pods() if needs_observation(pod, cards)]
        if not pods and self._own_node.get_current("annotations", well_known.NODE_OBSERVED) is None:
            return
        try:
            found = observe_pods(pods, await self._pod_resources.list_allocations() if pods else (), cards)
        except KubeletError as error:
            log.warning("pods not observed error=%s", error)
            await asyncio.sleep(RETRY_SECONDS)
            return
        self._own_node.set_desired(
            {("annotations", well_known.NODE_OBSERVED): write_observed(found) if found else None}
        )


def needs_observation(pod: LocalPod, cards: Iterable[CardFacts]) -> bool:
    """Whether its record fails to say which of these cards it is on."""
    record = pod.pod.record
    if not pod.is_active or not isinstance(record, Record):
        return pod.is_active
    uuids, indices = {card.uuid for card in cards}, {card.index for card in cards}
    return not all(share.uuid in uuids if share.uuid is not None else share.index in indices for share in record.shares)


def observe_pods(
    pods: Iterable[LocalPod], allocations: Iterable[DeviceAllocation], cards: Iterable[CardFacts]
) -> dict[str, tuple[Share, ...]]:
    """The shares of these pods, by uid, according to their device ids; without pods whose ids name no card of ours."""
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
