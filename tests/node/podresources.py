"""What kubelet says about which containers have which devices: the API that dcgm-exporter reads, too."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from tests.node.kubelet import POD_RESOURCES
from vrampack.agent.kubelet.generated.podresources_pb2 import ListPodResourcesRequest
from vrampack.agent.kubelet.generated.podresources_pb2_grpc import PodResourcesListerStub

TIMEOUT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class PodDevices:
    """The devices of one resource that one container has."""

    namespace: str
    pod: str
    container: str
    ids: tuple[str, ...]


def list_pod_resources(resource: str) -> list[PodDevices]:
    """The containers with devices of this resource, sorted by name."""
    with grpc.insecure_channel(f"unix://{POD_RESOURCES}") as channel:
        answer = PodResourcesListerStub(channel).List(ListPodResourcesRequest(), timeout=TIMEOUT_SECONDS)
    found = [
        PodDevices(pod.namespace, pod.name, container.name, tuple(sorted(devices.device_ids)))
        for pod in answer.pod_resources
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name == resource
    ]
    return sorted(found, key=lambda each: (each.namespace, each.pod, each.container))
