"""A small scripted device plugin for tests of the fake kubelet; not a model for a real plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Self

import grpc

from vrampack.agent.kubelet.generated import deviceplugin_pb2 as wire
from vrampack.agent.kubelet.generated.deviceplugin_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)

Context = grpc.aio.ServicerContext[object, object]
MEMORY = "aliyun.com/gpu-mem"


class ScriptedPlugin(DevicePluginServicer):
    """Serves on `<folder>/<name>` while it is entered; `register` is a call of its own."""

    def __init__(self, folder: Path, ids: Iterable[str], *, name: str = "plugin.sock", resource: str = MEMORY) -> None:
        self.folder = folder
        self.name = name
        self.resource = resource
        self.devices = dict.fromkeys(ids, "Healthy")
        self.options = wire.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
        self.envs = {"NVIDIA_VISIBLE_DEVICES": "void", "FROM_PLUGIN": "yes"}
        self.cdi_devices: list[str] = []
        """Qualified names that Allocate answers."""
        self.prefers: list[str] = []
        self.refusals: dict[str, str] = {}
        """By method name: the text of the error with which it fails."""
        self.held: set[str] = set()
        """Methods that do not answer until `release`."""
        self.entered: list[str] = []
        """The methods in the order in which they were called."""
        self.streams = 0
        self.asked = wire.ContainerPreferredAllocationRequest()
        """What GetPreferredAllocation was called with last."""
        self._changed = asyncio.Event()
        self._released = asyncio.Event()
        self._news = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server()
        add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.folder / self.name}")
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server:
            await self._server.stop(None)

    async def register(self, *, version: str = "v1beta1", resource: str = "", timeout_seconds: float = 5) -> None:
        request = wire.RegisterRequest(version=version, endpoint=self.name, resource_name=resource or self.resource)
        async with grpc.aio.insecure_channel(
            f"unix:{self.folder / 'kubelet.sock'}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            await RegistrationStub(channel).Register(request, timeout=timeout_seconds)

    def release(self) -> None:
        self.held.clear()
        self._released.set()

    async def called(self, method: str) -> None:
        """Wait until kubelet has called this method."""
        await self._until(lambda: method in self.entered)

    async def dropped(self) -> None:
        """Wait until no ListAndWatch is open."""
        await self._until(lambda: self.streams == 0)

    def set_health(self, device: str, health: str) -> None:
        self.devices[device] = health
        self._changed.set()

    async def GetDevicePluginOptions(self, request: wire.Empty, context: Context) -> wire.DevicePluginOptions:  # noqa: ARG002, N802 - as generated
        self._note("GetDevicePluginOptions")
        return self.options

    async def ListAndWatch(self, request: wire.Empty, context: Context) -> AsyncIterator[wire.ListAndWatchResponse]:  # noqa: ARG002, N802 - as generated
        self._note("ListAndWatch")
        self.streams += 1
        try:
            while True:
                self._changed.clear()  # before the list is made: a change while it is sent makes another
                devices = [wire.Device(ID=device, health=health) for device, health in self.devices.items()]
                yield wire.ListAndWatchResponse(devices=devices)
                await self._changed.wait()
        finally:
            self.streams -= 1
            self._news.set()

    async def GetPreferredAllocation(  # noqa: N802 - as generated
        self, request: wire.PreferredAllocationRequest, context: Context
    ) -> wire.PreferredAllocationResponse:
        await self._enter("GetPreferredAllocation", context)
        self.asked = request.container_requests[0]
        answer = wire.ContainerPreferredAllocationResponse(deviceIDs=self.prefers)
        return wire.PreferredAllocationResponse(container_responses=[answer])

    async def Allocate(self, request: wire.AllocateRequest, context: Context) -> wire.AllocateResponse:  # noqa: N802 - as generated
        await self._enter("Allocate", context)
        devices = [wire.CDIDevice(name=name) for name in self.cdi_devices]
        answers = [
            wire.ContainerAllocateResponse(envs=self.envs, cdi_devices=devices) for _ in request.container_requests
        ]
        return wire.AllocateResponse(container_responses=answers)

    async def PreStartContainer(  # noqa: N802 - as generated
        self,
        request: wire.PreStartContainerRequest,  # noqa: ARG002 - as generated
        context: Context,
    ) -> wire.PreStartContainerResponse:
        await self._enter("PreStartContainer", context)
        return wire.PreStartContainerResponse()

    async def _enter(self, method: str, context: Context) -> None:
        self._note(method)
        if method in self.refusals:
            await context.abort(grpc.StatusCode.UNKNOWN, self.refusals[method])
        while method in self.held:
            self._released.clear()
            await self._released.wait()

    def _note(self, method: str) -> None:
        self.entered.append(method)
        self._news.set()

    async def _until(self, predicate: Callable[[], bool]) -> None:
        """Wait for a condition, checked at every call and end of a stream."""

        async def wait() -> None:
            while not predicate():
                self._news.clear()
                await self._news.wait()

        async with asyncio.timeout(10):
            await wait()
