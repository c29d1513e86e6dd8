"""A container is about to start: which one it is, whether it may, and its pod's limit put in place first.

kubelet names device ids only. Its own lists (pod-resources) say by then whose they are, and the API server says what
that pod was given. A container that was admitted before needs no call to the API server.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.admission.fence import AdmittedStart, ContainerStart, Fence
from vrampack.agent.admission.ids_mode import CorrectedStart, IdsMode
from vrampack.agent.admission.pod_workload import PodWorkload
from vrampack.agent.admission.rejected_pods import RejectedPods
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.inventory.advertisement import Advertisement
from vrampack.agent.kubelet.errors import KubeletError
from vrampack.agent.kubelet.podresources import CheckpointAllocation, DeviceAllocation
from vrampack.agent.limits.contract import LimitTarget, Scope
from vrampack.agent.limits.enforcement import Enforcement
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.metrics import AgentMetrics
from vrampack.cards.grants import read_pod_limits
from vrampack.cards.pod import Pod
from vrampack.cards.records import RecordError
from vrampack.kube.errors import NoAnswerError, RefusedError

log = logging.getLogger(__name__)


class AllocationSource(Protocol):
    """kubelet's device allocations, see `kubelet/podresources.py`."""

    async def list_allocations(self) -> tuple[DeviceAllocation, ...]: ...
    async def read_checkpoint(self) -> tuple[CheckpointAllocation, ...]: ...


class PodSource(Protocol):
    """The API server's pods, see `cluster/pod_cache.py`."""

    def find_pod(self, uid: str) -> LocalPod | None: ...
    async def correct_record(self, pod: Pod, record: Mapping[str, str]) -> None: ...
    async def fetch_pod(self, namespace: str, name: str) -> LocalPod | None: ...


class PreStart:
    """What `PreStartContainer` does."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        fence: Fence,
        allocations: AllocationSource,
        pods: PodSource,
        workload: PodWorkload,
        enforcement: Enforcement,
        rejected_pods: RejectedPods,
        *,
        metrics: AgentMetrics,
        advertisement: Advertisement,
        ids_mode: IdsMode | None,
    ) -> None:
        """`ids_mode` is None where admission tells every container its card."""
        self._ids_mode = ids_mode
        self._fence = fence
        self._allocations = allocations
        self._pods = pods
        self._workload = workload
        self._enforcement = enforcement
        self._rejected_pods = rejected_pods
        self._metrics = metrics
        self._advertisement = advertisement

    def release_ids(self, ids: Iterable[str]) -> None:
        """Kubelet hands these ids to a container that is not started yet."""
        self._fence.release_ids(ids)

    async def admit_start(self, ids: frozenset[str]) -> AdmittedStart:
        """Let the container start that has exactly these ids. Raises `RefusedStartError`."""
        allocation = await self._find_allocation(ids)
        admitted = self._fence.find_admitted(allocation)
        if admitted is None:
            start = _with_container_name(ContainerStart(allocation, await self._fetch_pod(allocation)))
            admitted = await self._admit_first(start)
        else:
            await self._apply_limit(allocation, admitted)
        self._metrics.starts.labels("older" if admitted.is_legacy else "ok").inc()
        return admitted

    async def _admit_first(self, start: ContainerStart) -> AdmittedStart:
        cards = self._advertisement.current.cards
        try:
            corrected = self._correct_start(start)
            start = corrected.start
            admitted = self._fence.evaluate_start(start, cards, needs_references=self._ids_mode is None)
            self._fence.record_start(start, admitted, cards)  # in one turn of the loop with the evaluation
        except RefusedStartError as error:
            if error.reason != "other_node":  # that is a namesake, which runs elsewhere and must not be evicted
                self._rejected_pods.record_rejection(start, error)
            raise
        try:
            await self._write_correction(corrected)
            self._workload.record_admitted(start.pod)
            await self._apply_limit(start.allocation, admitted)
        except RefusedStartError as error:
            self._fence.withdraw_start(start, admitted)
            self._rejected_pods.record_rejection(start, error)
            raise
        if admitted.has_id_mismatch:
            self._metrics.id_card_mismatch.inc()
        self._rejected_pods.forget_pod(admitted.pod_uid)
        log.info(
            "start admitted pod=%s container=%s uid=%s cards=%s",
            start.pod.pod,
            start.allocation.container,
            admitted.pod_uid,
            ",".join(admitted.grant.units) if admitted.grant else "older",
        )
        return admitted

    async def _apply_limit(self, allocation: DeviceAllocation, admitted: AdmittedStart) -> None:
        """Of the whole pod, as its record has it now. A pod of a previous plugin has none."""
        pod = self._workload.find_pod(admitted.pod_uid)
        if admitted.grant is None or pod is None or pod.pod.request is None:
            return
        target = LimitTarget(admitted.pod_uid, allocation.namespace, allocation.pod_name)
        try:
            limits = read_pod_limits(pod.annotations, pod.pod.request)
            applied = await self._enforcement.apply(Scope.POD, target, limits)
        except (LimitError, RecordError) as error:
            raise RefusedStartError("limit", f"its memory limit cannot be put in place: {error}") from error
        log.debug("limit applied pod=%s state=%s held_by=%s", target, applied.state, applied.held_by)

    def _correct_start(self, start: ContainerStart) -> CorrectedStart:
        """In `ids` mode, with the record that its ids call for; a pod that admission wired up is left as it is."""
        request = start.pod.pod.request
        if self._ids_mode is None or request is None or request.has_references:
            return CorrectedStart(start, {})
        corrected = self._ids_mode.correct_start(start)
        if corrected.correction and self._fence.is_pod_admitted(start.pod.pod.uid):
            text = "kubelet took devices of another card for this container than for the pod's first; recreate the pod"
            raise RefusedStartError("ids", text)
        return corrected

    async def _write_correction(self, corrected: CorrectedStart) -> None:
        if not corrected.correction:
            return
        pod = corrected.start.pod.pod
        try:
            await self._pods.correct_record(pod, corrected.correction)
        except (NoAnswerError, RefusedError) as error:
            raise RefusedStartError("api", f"its record could not be made to say its card: {error}") from error
        self._metrics.record_corrections.inc()
        log.info("record corrected pod=%s uid=%s", pod, pod.uid)

    async def _find_allocation(self, ids: frozenset[str]) -> DeviceAllocation:
        """Whose ids these are. A plain init container is in no public list, but it shares its ids with the pod's others.

        One that shares them with no other stands in kubelet's checkpoint only.
        """
        try:
            listed = await self._allocations.list_allocations()
            found = next((each for each in listed if each.device_ids == ids), None) or _find_sharing_pod(ids, listed)
            found = found or await self._find_in_checkpoint(ids)
        except KubeletError as error:
            raise RefusedStartError("unknown_ids", f"kubelet does not say whose devices these are: {error}") from error
        if found is None:
            text = f"kubelet's own device allocations have no container with these {len(ids)} devices"
            raise RefusedStartError("unknown_ids", text)
        return found

    async def _find_in_checkpoint(self, ids: frozenset[str]) -> DeviceAllocation | None:
        """The newest entry of these very ids whose pod is on this node."""
        for entry in reversed([each for each in await self._allocations.read_checkpoint() if each.device_ids == ids]):
            pod = self._pods.find_pod(entry.pod_uid)
            if pod is not None:
                return DeviceAllocation(pod.pod.namespace, pod.pod.name, entry.container, ids)
        return None

    async def _fetch_pod(self, allocation: DeviceAllocation) -> LocalPod:
        try:
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
    """The one pod that has some of these ids; its container is none of those that are listed."""
    pods = {(each.namespace, each.pod_name) for each in allocations if not each.device_ids.isdisjoint(ids)}
    if len(pods) != 1:
        return None
    namespace, pod = pods.pop()
    return DeviceAllocation(namespace, pod, "", ids)


def _with_container_name(start: ContainerStart) -> ContainerStart:
    """With the name of the init container, where only its pod was known: one that asks for so many units."""
    allocation, request = start.allocation, start.pod.pod.request
    if allocation.container or request is None:
        return start
    size = len(allocation.device_ids)
    name = next((each.name for each in request.containers if each.kind == "init" and each.units == size), "")
    if not name:
        text = f"no init container of pod {start.pod.pod} asks for the {size} devices that it is started with"
        raise RefusedStartError("unknown_ids", text)
    return replace(start, allocation=replace(allocation, container=name))
