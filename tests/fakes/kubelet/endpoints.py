"""kubelet's side of one plugin: the connection to its socket, and the endpoint through which calls go.

They are two things, as in kubelet: an endpoint that was stopped keeps its options (so a start fails), and after a
restart there is an endpoint without connection or options (so PreStartContainer is skipped).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc

from tests.fakes.kubelet.errors import DeviceError, KilledError, describe_error
from tests.fakes.kubelet.history import PluginCall
from vrampack.agent.kubelet.generated import deviceplugin_pb2 as wire
from vrampack.agent.kubelet.generated.deviceplugin_pb2_grpc import DevicePluginStub

RECEIVE_BYTES = 4 * 1024 * 1024
"""The default of grpc in Go, which kubelet leaves as it is."""

Answer = TypeVar("Answer")
Options = list[tuple[str, str | int]]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """kubelet's own. GetDevicePluginOptions, GetPreferredAllocation and Allocate have none."""

    dial_seconds: float = 10
    pre_start_seconds: float = 30


class PluginConnection:
    """A dialled plugin, from Register to the end of its stream."""

    def __init__(self, resource: str, path: Path) -> None:
        self.resource = resource
        self.path = path
        options: Options = [
            ("grpc.default_authority", "localhost"),
            ("grpc.max_receive_message_length", RECEIVE_BYTES),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self._channel = grpc.aio.insecure_channel(f"unix:{path}", options=options)
        self.plugin = DevicePluginStub(self._channel)
        self._is_closed = False
        self.ended = ""
        """Why the stream is over, once it is."""
        self.is_killed = False
        """Set when kubelet itself is gone and no longer reacts to broken calls."""

    async def dial(self, timeout_seconds: float) -> None:
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise DeviceError("failed to dial device plugin: context deadline exceeded") from error

    async def watch(self, receive: Callable[[Collection[wire.Device]], None]) -> None:
        """Read lists until either side ends the stream."""
        try:
            async for answer in self.plugin.ListAndWatch(wire.Empty()):
                if not self._is_closed:  # what was on its way is lost with the connection
                    receive(answer.devices)
            self.ended = "EOF"
        except grpc.aio.AioRpcError as error:
            self.ended = describe_error(error)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            self.ended = "the connection was closed"  # by us: grpc.aio cancels its calls then

    async def close(self) -> None:
        self._is_closed = True
        await self._channel.close()


class PluginEndpoint:
    """Where calls about a resource go at present."""

    def __init__(
        self,
        resource: str,
        calls: list[PluginCall],
        *,
        connection: PluginConnection | None = None,
        options: wire.DevicePluginOptions | None = None,
    ) -> None:
        self.resource = resource
        self.options = options
        self.is_stopped = connection is None
        self.connection = connection
        self._calls = calls

    async def preferred(self, available: Sequence[str], included: Sequence[str], size: int) -> set[str]:
        asked = wire.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=included, allocation_size=size
        )
        request = wire.PreferredAllocationRequest(container_requests=[asked])
        call = self._stub().GetPreferredAllocation(request)
        answer: wire.PreferredAllocationResponse = await self._noted("GetPreferredAllocation", available, call)
        return set(answer.container_responses[0].deviceIDs) if answer.container_responses else set()

    async def allocate(self, ids: Sequence[str]) -> wire.ContainerAllocateResponse:
        request = wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=ids)])
        answer: wire.AllocateResponse = await self._noted("Allocate", ids, self._stub().Allocate(request))
        if not answer.container_responses:
            raise DeviceError(f"no containers return in allocation response {answer}")
        return answer.container_responses[0]

    async def pre_start(self, ids: Sequence[str], timeout_seconds: float) -> None:
        request = wire.PreStartContainerRequest(devices_ids=ids)
        call = self._stub().PreStartContainer(request, timeout=timeout_seconds)
        await self._noted("PreStartContainer", ids, call)

    def _stub(self) -> DevicePluginStub:
        return self._connected().plugin

    def _connected(self) -> PluginConnection:
        if self.is_stopped or self.connection is None:
            raise DeviceError(f"endpoint {self.resource} has been stopped")
        return self.connection

    async def _noted(self, method: str, ids: Sequence[str], call: Awaitable[Answer]) -> Answer:
        """Await the call and remember it, whatever becomes of it."""
        connection, begun, error_text = self._connected(), time.perf_counter(), "the call was cancelled"
        try:
            answer = await call
            error_text = ""
        except grpc.aio.AioRpcError as error:
            error_text = describe_error(error)
            raise DeviceError(error_text) from error
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            if connection.is_killed:
                raise KilledError(f"kubelet was killed during {method}") from error
            error_text = "rpc error: code = Canceled desc = grpc: the client connection is closing"
            raise DeviceError(error_text) from error
        finally:
            seconds = time.perf_counter() - begun
            self._calls.append(PluginCall(method, connection.path.name, tuple(ids), seconds, error_text))
        return answer
