"""Tells the fence what already runs on the node: when the agent starts, and after a time in which kubelet could not ask it.

If a requesting container of a pod was created, the pod has passed this agent's fence or an earlier one's. Pods that the API server
no longer has are still in kubelet's checkpoint, and their cgroup is still on the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from vrampack.agent.admission.fence import Fence
from vrampack.agent.admission.lingering_pods import LingeringPods
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.pod_cache import PodCache
from vrampack.agent.kubelet.device_ids import count_readable_units
from vrampack.agent.kubelet.errors import KubeletError
from vrampack.agent.kubelet.podresources import CheckpointAllocation, DeviceAllocation, PodResourcesClient
from vrampack.agent.metrics import AgentMetrics
from vrampack.cards.node import CardFacts
from vrampack.cards.records import Record

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class RunningPods:
    """Of one node."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        fence: Fence,
        pod_cache: PodCache,
        pod_resources: PodResourcesClient,
        *,
        lingering_pods: LingeringPods,
        metrics: AgentMetrics,
        on_unfenced_start: Callable[[LocalPod], None],
        get_cards: Callable[[], Iterable[CardFacts]],
    ) -> None:
        self._fence = fence
        self._pod_cache = pod_cache
        self._pod_resources = pod_resources
        self._lingering_pods = lingering_pods
        self._metrics = metrics
        self._on_unfenced_start = on_unfenced_start
        self._get_cards = get_cards

    def is_card_held(self, uuid: str) -> bool:
        """Whether a live pod has units of that card, by record or by what was admitted."""
        records = [pod.pod.record for pod in self._pod_cache.list_pods()]
        recorded = {share.uuid for record in records if isinstance(record, Record) for share in record.shares}
        return uuid in recorded or self._fence.count_held_units()[uuid] > 0

    async def restore_fence(self) -> None:
        """Restore the fence, once the pods are known. Waits for kubelet."""
        self._fence.restore_pods(self._pod_cache.list_pods(), await self._list_allocations(), self._get_cards())
        await self._restore_lingering_pods()

    async def count_unfenced_starts(self) -> None:
        """Count what started while kubelet could not ask, right after it can again."""
        if not self._fence.find_unadmitted_pods(self._pod_cache.list_pods()):
            return
        allocations = await self._list_allocations()
        for pod in self._fence.restore_pods(self._pod_cache.list_pods(), allocations, self._get_cards()):
            self._metrics.unfenced_starts.inc()
            self._on_unfenced_start(pod)
            log.warning("unfenced start counted pod=%s uid=%s", pod.pod, pod.pod.uid)

    async def _restore_lingering_pods(self) -> None:
        known = {pod.pod.uid for pod in self._pod_cache.list_pods()}
        ids: dict[str, frozenset[str]] = {}
        for each in await self._read_checkpoint():
            if each.pod_uid not in known:
                ids[each.pod_uid] = ids.get(each.pod_uid, frozenset()) | each.device_ids
        await self._lingering_pods.restore_pods({uid: count_readable_units(found) for uid, found in ids.items()})

    async def _read_checkpoint(self) -> tuple[CheckpointAllocation, ...]:
        """The checkpoint; empty when it cannot be read, as no start is admitted then either."""
        try:
            return await self._pod_resources.read_checkpoint()
        except KubeletError as error:
            log.warning("lingering pods not restored error=%s", error)
            return ()

    async def _list_allocations(self) -> tuple[DeviceAllocation, ...]:
        """Kubelet's device allocations as soon as it shows them."""
        while True:
            try:
                return await self._pod_resources.list_allocations()
            except KubeletError as error:
                log.warning("kubelet not answering error=%s", error)
                await asyncio.sleep(RETRY_SECONDS)
