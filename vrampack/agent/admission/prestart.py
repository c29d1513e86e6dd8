"""Handles a container that is about to start: finds out which one it is, decides whether it may, and applies its pod's limit first.

    first start: fence --admitted--> limit --> cards --> may start, and its refusal is withdrawn
                   ^                   |         |
                   '-- taken back -----+---------+-- refused, or kubelet has stopped waiting: reported, see `rejected_pods.py`
    a restart:  cards listed? -----> limit --> cards    likewise, but stays admitted: its pod has run

kubelet names only device ids. By then its own list (pod-resources) says which container has them, and the API server says what
that pod was given. A container that was admitted before needs no call to the API server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.admission.fence import REJECTION_REASONS, AdmittedStart, ContainerStart, Fence
from vrampack.agent.admission.injection import Injection, select_injected
from vrampack.agent.admission.lingering_pods import LingeringPods
from vrampack.agent.admission.pod_workload import PodWorkload
from vrampack.agent.admission.rejected_pods import RejectedPods
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.pod_cache import PodCache
from vrampack.agent.inventory.advertisement import Advertisement
from vrampack.agent.inventory.discovery import Discovery
from vrampack.agent.kubelet.errors import KubeletError
from vrampack.agent.kubelet.podresources import CheckpointAllocation, DeviceAllocation, PodResourcesClient
from vrampack.agent.limits.contract import LimitTarget, Scope
from vrampack.agent.limits.enforcement import Enforcement
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.metrics import AgentMetrics
from vrampack.cards.grants import read_pod_limits
from vrampack.cards.records import RecordError
from vrampack.kube.errors import NoAnswerError, RefusedError

log = logging.getLogger(__name__)

DEADLINE_TEXT = (
    "kubelet stopped waiting before its limit and its cards were in place; the agent's log says what was slow"
)
LIST_WAIT_SECONDS = 20.0
"""Part of the 30 s that kubelet waits: the driver lists its cards every 5 s, unless something hangs."""
RELEASE_WAIT_SECONDS = 5.0
"""Part of the 30 s that kubelet waits: a pod that has ended is gone from the node by then, unless something hangs."""


class PreStart:
    """What `PreStartContainer` does."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        fence: Fence,
        allocations: PodResourcesClient,
        pods: PodCache,
        workload: PodWorkload,
        enforcement: Enforcement,
        rejected_pods: RejectedPods,
        *,
        lingering_pods: LingeringPods,
        metrics: AgentMetrics,
        advertisement: Advertisement,
        card_lists: Discovery,
        injector: Injection,
    ) -> None:
        for result in ("ok", "older", *REJECTION_REASONS):
            metrics.starts.labels(result)  # starts at 0, so that the first refusal of a reason shows as an increase
        self._injector = injector
        self._fence = fence
        self._allocations = allocations
        self._pods = pods
        self._workload = workload
        self._enforcement = enforcement
        self._rejected_pods = rejected_pods
        self._lingering_pods = lingering_pods
        self._metrics = metrics
        self._advertisement = advertisement
        self._card_lists = card_lists

    def release_ids(self, ids: Iterable[str]) -> None:
        """Kubelet hands these ids to a container that is not started yet."""
        self._fence.release_ids(ids)

    async def admit_start(self, ids: frozenset[str]) -> AdmittedStart:
        """Let the container start that has exactly these ids. Raises `RefusedStartError`."""
        allocation, entries = await self._find_allocation(ids)
        admitted = self._fence.find_admitted(allocation)
        pod = self._workload.find_pod(admitted.pod_uid) if admitted is not None else None
        pod = pod or await self._fetch_starting_pod(allocation, entries)
        injected = select_injected(entries, pod.pod.uid)
        start = ContainerStart(allocation, pod, is_injected=bool(injected))
        try:
            if admitted is None:
                admitted = await self._admit_first(start, injected)
            else:
                await self._check_cards_again(admitted)
                await self._prepare_start(start, admitted, injected)
        except RefusedStartError as error:
            self._rejected_pods.record_rejection(start, error)
            raise
        except asyncio.CancelledError:
            self._rejected_pods.record_rejection(start, RefusedStartError("deadline", DEADLINE_TEXT))
            raise
        self._rejected_pods.withdraw_rejection(start)
        self._metrics.starts.labels("older" if admitted.is_legacy else "ok").inc()
        return admitted

    async def _admit_first(self, start: ContainerStart, injected: Sequence[CheckpointAllocation]) -> AdmittedStart:
        """`injected`: the pod's allocations of these ids that get their card by CDI; if empty, the environment names it."""
        start, admitted = await self._record_start(_with_container_name(start))
        try:
            self._workload.record_admitted(start.pod)
            await self._prepare_start(start, admitted, injected)
        except BaseException:  # a cancellation, too: kubelet has stopped waiting, and the container does not start
            if self._fence.withdraw_start(start, admitted):
                self._workload.forget_pod(admitted.pod_uid)
            raise
        if admitted.has_id_mismatch:
            self._metrics.id_card_mismatch.inc()
        log.info(
            "start admitted pod=%s container=%s uid=%s cards=%s",
            start.pod.pod,
            start.allocation.container,
            admitted.pod_uid,
            ",".join(admitted.grant.units) if admitted.grant else "older",
        )
        return admitted

    async def _prepare_start(
        self, start: ContainerStart, admitted: AdmittedStart, injected: Sequence[CheckpointAllocation]
    ) -> None:
        """Put the limit of an admitted container in force, and its cards into place."""
        await self._apply_limit(start.allocation, admitted)
        if injected:
            await self._injector.inject_cards(start.pod, injected)

    async def _record_start(self, start: ContainerStart) -> tuple[ContainerStart, AdmittedStart]:
        """Units of a pod that has ended are free in a moment: wait for them, as kubelet asks again only after 10 s."""
        ends_at = time.monotonic() + RELEASE_WAIT_SECONDS
        while True:
            cards = self._advertisement.current.cards
            try:
                admitted = self._fence.evaluate_start(start, cards)
                self._fence.record_start(start, admitted, cards)  # in one turn of the loop with the evaluation
            except RefusedStartError as error:
                seconds = ends_at - time.monotonic() if error.reason == "lingering" else 0.0
                if await self._lingering_pods.wait_for_release(seconds):
                    start = await self._fetch_again(start)
                    continue
                raise
            return start, admitted

    async def _fetch_again(self, start: ContainerStart) -> ContainerStart:
        """The start with the pod as it is now: it may have been deleted meanwhile."""
        pod = await self._fetch_pod(start.allocation)
        if pod.pod.uid != start.pod.pod.uid:
            raise RefusedStartError("unknown_pod", f"the API server now has another pod named {pod.pod}")
        return replace(start, pod=pod)

    async def _check_cards_again(self, admitted: AdmittedStart) -> None:
        """Wait for a list rather than refuse at once: kubelet pauses for longer and longer between a container's restarts."""
        if admitted.grant is not None:
            await self._card_lists.wait_until_known(admitted.grant.units.keys(), LIST_WAIT_SECONDS)
            self._fence.check_presence(admitted.grant.units)

    async def _apply_limit(self, allocation: DeviceAllocation, admitted: AdmittedStart) -> None:
        """Apply the limit of the whole pod, as its record says now. A pod of a previous plugin has none."""
        pod = self._workload.find_pod(admitted.pod_uid)
        if admitted.grant is None or pod is None or pod.pod.request is None:
            return
        target = LimitTarget(admitted.pod_uid, allocation.namespace, allocation.pod_name)
        try:
            limits = read_pod_limits(pod.annotations, pod.pod.request)
            applied = await self._enforcement.apply(Scope.POD, target, limits)
        except (LimitError, RecordError) as error:
            raise RefusedStartError("limit", f"its memory limit cannot be put in force: {error}") from error
        log.debug("limit applied pod=%s state=%s held_by=%s", target, applied.state, applied.held_by)

    async def _find_allocation(self, ids: frozenset[str]) -> tuple[DeviceAllocation, tuple[CheckpointAllocation, ...]]:
        """Which container has these ids, and their entries in kubelet's checkpoint.

        pod-resources does not list a plain init container, but it usually shares its ids with other containers of the pod. If
        it shares them with none, only the checkpoint has it. `Allocate`'s answer is in the checkpoint only, too.
        """
        try:
            with self._metrics.time_start_wait("kubelet"):
                listed, checkpoint = await asyncio.gather(
                    self._allocations.list_allocations(), self._allocations.read_checkpoint()
                )
        except KubeletError as error:
            raise RefusedStartError("unknown_ids", f"kubelet does not say whose devices these are: {error}") from error
        entries = tuple(each for each in checkpoint if each.device_ids == ids)
        found = next((each for each in listed if each.device_ids == ids), None) or _find_sharing_pod(ids, listed)
        found = found or self._find_in_checkpoint(ids, entries)
        if found is None:
            text = f"kubelet's own device allocations have no container with these {len(ids)} devices"
            raise RefusedStartError("unknown_ids", text)
        return found, entries

    def _find_in_checkpoint(
        self, ids: frozenset[str], entries: Sequence[CheckpointAllocation]
    ) -> DeviceAllocation | None:
        """The newest of these entries whose pod is on this node."""
        for entry in reversed(entries):
            pod = self._pods.find_pod(entry.pod_uid)
            if pod is not None:
                return DeviceAllocation(pod.pod.namespace, pod.pod.name, entry.container, ids)
        return None

    async def _fetch_starting_pod(
        self, allocation: DeviceAllocation, entries: Sequence[CheckpointAllocation]
    ) -> LocalPod:
        """`_fetch_pod`, where an API server that does not answer is a refusal of the pod that the watch shows."""
        try:
            return await self._fetch_pod(allocation)
        except RefusedStartError as error:
            pod = self._pods.find_named_pod(allocation.namespace, allocation.pod_name)
            if error.reason == "api" and pod is not None:
                is_injected = bool(select_injected(entries, pod.pod.uid))
                self._rejected_pods.record_rejection(ContainerStart(allocation, pod, is_injected=is_injected), error)
            raise

    async def _fetch_pod(self, allocation: DeviceAllocation) -> LocalPod:
        try:
            with self._metrics.time_start_wait("api_server"):
                pod = await self._pods.fetch_pod(allocation.namespace, allocation.pod_name)
        except (NoAnswerError, RefusedError) as error:
            text = (
                f"the API server does not say what pod {allocation.namespace}/{allocation.pod_name} was given: {error}"
            )
            raise RefusedStartError("api", text) from error
        if pod is None:
            raise RefusedStartError(
                "unknown_pod", f"the API server has no pod {allocation.namespace}/{allocation.pod_name}"
            )
        return pod


def _find_sharing_pod(ids: frozenset[str], allocations: Iterable[DeviceAllocation]) -> DeviceAllocation | None:
    """The one pod that has some of these ids; the container itself is not listed."""
    pods = {(each.namespace, each.pod_name) for each in allocations if not each.device_ids.isdisjoint(ids)}
    if len(pods) != 1:
        return None
    namespace, pod = pods.pop()
    return DeviceAllocation(namespace, pod, "", ids)


def _with_container_name(start: ContainerStart) -> ContainerStart:
    """The start with the name of its init container, if only the pod was known: one that asks for this many units."""
    allocation, request = start.allocation, start.pod.pod.request
    if allocation.container or request is None:
        return start
    size = len(allocation.device_ids)
    name = next((each.name for each in request.containers if each.kind == "init" and each.units == size), "")
    if not name:
        text = f"no init container of pod {start.pod.pod} asks for the {size} devices that it is started with"
        raise RefusedStartError("unknown_ids", text)
    return replace(start, allocation=replace(allocation, container=name))
