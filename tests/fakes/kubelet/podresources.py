"""Pod-resources v1 List, as kubelet answers it.

Every active pod is listed from the moment its admission begins, with or without devices; init containers only where
they are restartable; and each device id is an entry of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import grpc

from tests.fakes.kubelet.admission import FakeAdmission
from tests.fakes.kubelet.books import DeviceCheckpoint
from tests.fakes.kubelet.doors import FaultPoints
from tests.fakes.kubelet.pods import KubeletContainer, KubeletPod
from vrampack.agent.kubelet.generated import podresources_pb2 as wire
from vrampack.agent.kubelet.generated.podresources_pb2_grpc import PodResourcesListerServicer


class Lister(PodResourcesListerServicer):
    """One life of the pod-resources service."""

    def __init__(
        self,
        books: DeviceCheckpoint,
        admission: FakeAdmission,
        doors: FaultPoints,
        random: Random,
        *,
        active: Callable[[], Iterable[KubeletPod]],
    ) -> None:
        self._books = books
        self._admission = admission
        self._doors = doors
        self._random = random
        self._active = active

    async def List(  # noqa: N802 - the service's name
        self,
        request: wire.ListPodResourcesRequest,  # noqa: ARG002 - it is empty
        context: grpc.aio.ServicerContext[wire.ListPodResourcesRequest, wire.ListPodResourcesResponse],
    ) -> wire.ListPodResourcesResponse:
        await self._doors.list_pods.passing(context)
        self._admission.collect()
        return wire.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in self._active()])

    def _pod(self, pod: KubeletPod) -> wire.PodResources:
        shown = [self._container(pod, container) for container in pod.containers if container.kind != "init"]
        return wire.PodResources(name=pod.name, namespace=pod.namespace, containers=shown)

    def _container(self, pod: KubeletPod, container: KubeletContainer) -> wire.ContainerResources:
        entries = [
            wire.ContainerDevices(resource_name=resource, device_ids=[device])
            for resource, held in self._books.held_by(pod.uid, container.name).items()
            for device in sorted(held.ids)
        ]
        self._random.shuffle(entries)
        return wire.ContainerResources(name=container.name, devices=entries)
