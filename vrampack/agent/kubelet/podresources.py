"""kubelet's own device allocations: which container has which device ids. The truth about devices; our record is that about cards.

Two of them. pod-resources is the public one, and leaves plain init containers out; kubelet's checkpoint has those too,
with the pod's uid, and is read for them alone: its form is kubelet's own business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import DecodeError

from vrampack.agent.kubelet.errors import KubeletError
from vrampack.agent.kubelet.generated.deviceplugin_pb2 import ContainerAllocateResponse
from vrampack.agent.kubelet.generated.podresources_pb2 import ListPodResourcesRequest, ListPodResourcesResponse
from vrampack.agent.kubelet.generated.podresources_pb2_grpc import PodResourcesListerStub
from vrampack.kube.objects import UNDECODABLE

log = logging.getLogger(__name__)

CALL_SECONDS = 5.0
BUSY_RETRY_SECONDS = 0.05
"""kubelet answers 100 a second and refuses more: asked again after so long, within `CALL_SECONDS`."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""A node of 500 pods with 256 MiB units is below 1 MiB; grpc's own 4 MiB would be an accidental limit."""


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """The ids of our resource that one container has."""

    namespace: str
    pod_name: str
    container: str
    device_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class CheckpointAllocation:
    """The same as the checkpoint has it."""

    pod_uid: str
    container: str
    device_ids: frozenset[str]
    answer: bytes = b""
    """What `Allocate` answered for it: kubelet gives the runtime this at every start."""

    @property
    def cdi_devices(self) -> tuple[str, ...]:
        """Qualified names of the CDI devices in that answer; none where it cannot be read."""
        try:
            answer = ContainerAllocateResponse.FromString(self.answer)
        except DecodeError:
            return ()
        return tuple(device.name for device in answer.cdi_devices)


class PodResourcesClient:
    """The client of one kubelet. Callers that come while a list is on its way share the next one."""

    def __init__(self, socket: Path, checkpoint: Path, *, resource: str) -> None:
        self._socket = socket
        self._checkpoint = checkpoint
        self._resource = resource
        self._next_answer: asyncio.Task[tuple[DeviceAllocation, ...]] | None = None
        self._call_lock = asyncio.Lock()
        self._channel: grpc.aio.Channel | None = None
        self._channel_state: tuple[int, int] | None = None
        """Inode of the socket that the channel was opened for, and the time of its change in ns; None: there was none."""

    async def list_allocations(self) -> tuple[DeviceAllocation, ...]:
        """Every container of this node that has ids of the resource, as of after this call. Raises `KubeletError`."""
        if self._next_answer is None:
            self._next_answer = asyncio.create_task(self._next_list())
        return await asyncio.shield(self._next_answer)

    async def read_checkpoint(self) -> tuple[CheckpointAllocation, ...]:
        """What the checkpoint has, plain init containers too, and those of pods that are gone. Raises `KubeletError`."""
        return await asyncio.to_thread(_read_checkpoint, self._checkpoint, self._resource)

    async def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._channel is not None:
            await self._channel.close()
        self._channel = None

    async def _next_list(self) -> tuple[DeviceAllocation, ...]:
        """One list; a caller that asks after it has begun waits for the next."""
        async with self._call_lock:
            self._next_answer = None
            return await self._list()

    async def _list(self) -> tuple[DeviceAllocation, ...]:
        ends_at = asyncio.get_running_loop().time() + CALL_SECONDS
        busy: grpc.aio.AioRpcError | None = None
        stub = PodResourcesListerStub(await self._open_channel())
        while True:
            left = ends_at - asyncio.get_running_loop().time()
            try:
                answer = await stub.List(ListPodResourcesRequest(), timeout=left)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and left > BUSY_RETRY_SECONDS:
                    busy = error
                    await asyncio.sleep(BUSY_RETRY_SECONDS)
                    continue
                # One that has failed would wait longer and longer before it connects again.
                await self.close()
                # What is left for the last try may be too little for any answer: that it was busy is the reason.
                why = busy if busy is not None and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else error
                raise KubeletError(f"pod-resources: {why.code().name}: {why.details()}") from error
            return tuple(_parse_allocations(answer, self._resource))

    async def _open_channel(self) -> grpc.aio.Channel:
        """The one that is open, unless kubelet has restarted since: its socket is another one then."""
        state = _read_socket_state(self._socket)
        if self._channel is None or state != self._channel_state:
            await self.close()
            options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES)]
            self._channel = grpc.aio.insecure_channel(f"unix:{self._socket}", options=options)
            self._channel_state = state
        return self._channel


def _read_socket_state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def _parse_allocations(answer: ListPodResourcesResponse, resource: str) -> Iterable[DeviceAllocation]:
    for pod in answer.pod_resources:
        for container in pod.containers:
            ids = frozenset(
                each for given in container.devices if given.resource_name == resource for each in given.device_ids
            )
            if ids:
                yield DeviceAllocation(pod.namespace, pod.name, container.name, ids)


class _CheckpointEntry(msgspec.Struct, frozen=True, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str]] = msgspec.field(name="DeviceIDs")
    """By NUMA node."""
    alloc_resp: bytes | None = None


class _CheckpointData(msgspec.Struct, frozen=True, rename="pascal"):
    pod_device_entries: list[_CheckpointEntry] | None = None


class _Checkpoint(msgspec.Struct, frozen=True, rename="pascal"):
    data: _CheckpointData


def _read_checkpoint(path: Path, resource: str) -> tuple[CheckpointAllocation, ...]:
    try:
        checkpoint = msgspec.json.decode(path.read_bytes(), type=_Checkpoint)
    except FileNotFoundError:
        return ()
    except (OSError, *UNDECODABLE) as error:
        raise KubeletError(f"{path}: {error}") from error
    return tuple(
        CheckpointAllocation(
            entry.pod_uid,
            entry.container_name,
            frozenset(each for ids in entry.device_ids.values() for each in ids),
            entry.alloc_resp or b"",
        )
        for entry in checkpoint.data.pod_device_entries or ()
        if entry.resource_name == resource
    )
