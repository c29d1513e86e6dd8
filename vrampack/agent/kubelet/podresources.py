"""kubelet's device allocations: which container has which device ids. They are the truth about devices; our record is about cards.

There are two sources. pod-resources is the public one, and leaves out plain init containers. kubelet's checkpoint has those too,
with the pod's uid and `Allocate`'s answer, but its format is internal to kubelet.
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
from vrampack.kube.decoding import UNDECODABLE

log = logging.getLogger(__name__)

CALL_SECONDS = 5.0
BUSY_RETRY_SECONDS = 0.05
"""kubelet answers 100 calls a second and refuses more: the pause before asking again, within `CALL_SECONDS`."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The list of 500 pods with 256 MiB units is below 1 MiB; grpc's default of 4 MiB would be an accidental limit."""


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """The ids of our resource that one container has."""

    namespace: str
    pod_name: str
    container: str
    device_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class CheckpointAllocation:
    """The ids of one container in kubelet's checkpoint."""

    pod_uid: str
    container: str
    device_ids: frozenset[str]
    answer: bytes = b""
    """`Allocate`'s answer for it, which kubelet passes to the runtime at every start."""

    @property
    def cdi_devices(self) -> tuple[str, ...]:
        """Qualified names of the CDI devices in that answer; none if it cannot be read."""
        try:
            answer = ContainerAllocateResponse.FromString(self.answer)
        except DecodeError:
            return ()
        return tuple(device.name for device in answer.cdi_devices)


class PodResourcesClient:
    """The client of one kubelet. Callers that come while a list is under way share the next one."""

    def __init__(self, socket: Path, checkpoint: Path, *, resource: str) -> None:
        self._socket = socket
        self._checkpoint = checkpoint
        self._resource = resource
        self._next_answer: asyncio.Task[tuple[DeviceAllocation, ...]] | None = None
        self._call_lock = asyncio.Lock()
        self._channel: grpc.aio.Channel | None = None
        self._channel_state: tuple[int, int] | None = None
        """Inode and change time in ns of the socket that the channel was opened for; None: there was no socket."""

    async def list_allocations(self) -> tuple[DeviceAllocation, ...]:
        """Every container of this node with ids of the resource, no older than this call. Raises `KubeletError`."""
        if self._next_answer is None:
            self._next_answer = asyncio.create_task(self._next_list())
        return await asyncio.shield(self._next_answer)

    async def read_checkpoint(self) -> tuple[CheckpointAllocation, ...]:
        """All checkpoint entries, also of plain init containers and of pods that are gone. Raises `KubeletError`."""
        return await asyncio.to_thread(_read_checkpoint, self._checkpoint, self._resource)

    async def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._channel is not None:
            await self._channel.close()
        self._channel = None

    async def _next_list(self) -> tuple[DeviceAllocation, ...]:
        """Fetch one list; a caller that comes after it has begun waits for the next."""
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
                # A failed channel would wait longer and longer before it reconnects.
                await self.close()
                # The time left for the last try may be too short for any answer: report that kubelet was busy.
                why = busy if busy is not None and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else error
                raise KubeletError(f"pod-resources: {why.code().name}: {why.details()}") from error
            return tuple(_parse_allocations(answer, self._resource))

    async def _open_channel(self) -> grpc.aio.Channel:
        """The open channel, or a new one if kubelet's socket was replaced, as a restart does."""
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
