"""kubelet's own books: which container has which device ids. The truth about devices; our record is that about cards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from agent.errors import KubeletError
from agent.kubelet.podresources_pb2 import ListPodResourcesRequest, ListPodResourcesResponse
from agent.kubelet.podresources_pb2_grpc import PodResourcesListerStub

CALL_SECONDS = 5.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""A node of 500 pods with 256 MiB units is below 1 MiB; grpc's own 4 MiB would be a limit that nobody chose."""


@dataclass(frozen=True, slots=True)
class Held:
    """The ids of our resource that one container has."""

    namespace: str
    pod: str
    container: str
    ids: frozenset[str]


class PodResources:
    """The client of one kubelet."""

    def __init__(self, socket: Path, *, resource: str) -> None:
        self._socket = socket
        self._resource = resource

    async def held(self) -> tuple[Held, ...]:
        """Every container of this node that has ids of the resource. Raises `KubeletError`."""
        options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES)]
        try:
            # A channel per call: kubelet's socket is another one after each of its restarts.
            async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=options) as channel:
                answer = await PodResourcesListerStub(channel).List(ListPodResourcesRequest(), timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise KubeletError(f"pod-resources: {error.code().name}: {error.details()}") from error
        return tuple(_held(answer, self._resource))


def _held(answer: ListPodResourcesResponse, resource: str) -> Iterable[Held]:
    for pod in answer.pod_resources:
        for container in pod.containers:
            ids = frozenset(
                each for given in container.devices if given.resource_name == resource for each in given.device_ids
            )
            if ids:
                yield Held(pod.namespace, pod.name, container.name, ids)
