"""The Registration service, and which plugin counts as registered for a resource.

As in kubelet, the newest registration gets the calls, but an older one whose stream is still open goes on pushing its
lists into the same resource; and whichever stream ends *first* takes the newest registration down with it, because
the end is looked up by resource name. A registration that fails forgets the older one, too: kubelet no longer notices
when that one's stream ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

import grpc

from tests.fakes.kubelet.books import DeviceCheckpoint
from tests.fakes.kubelet.doors import FaultPoints
from tests.fakes.kubelet.endpoints import PluginConnection, PluginEndpoint, Timeouts
from tests.fakes.kubelet.errors import DeviceError, describe_error
from tests.fakes.kubelet.history import KubeletHistory, PluginRegistration
from vrampack.agent.kubelet.generated import deviceplugin_pb2 as wire
from vrampack.agent.kubelet.generated.deviceplugin_pb2_grpc import RegistrationServicer

VERSION = "v1beta1"


class Registrar(RegistrationServicer):
    """One life of kubelet's registration service. `changed` is called at every change that somebody may wait for."""

    def __init__(
        self,
        folder: Path,
        books: DeviceCheckpoint,
        doors: FaultPoints,
        timeouts: Timeouts,
        history: KubeletHistory,
        *,
        changed: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._books = books
        self._doors = doors
        self._timeouts = timeouts
        self._history = history
        self._changed = changed
        self.endpoints: dict[str, PluginEndpoint] = {}
        self._newest: dict[str, PluginConnection] = {}
        """Per resource: what ends when any stream of the resource ends."""
        self._open: set[PluginConnection] = set()
        """As kubelet does, one that was replaced stays open when its stream is over."""
        self._watches: set[asyncio.Task[None]] = set()

    async def Register(  # noqa: N802 - the service's name
        self, request: wire.RegisterRequest, context: grpc.aio.ServicerContext[wire.RegisterRequest, wire.Empty]
    ) -> wire.Empty:
        await self._doors.register.passing(context)
        try:
            self._check(request)
            connection = PluginConnection(request.resource_name, self._folder / request.endpoint)
            await self._connect(connection)
        except DeviceError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        self._history.registrations.append(PluginRegistration(request.resource_name, request.endpoint))
        self._changed()
        await self._doors.register_answer.passing(context)
        return wire.Empty()

    def stop_unknown(self, resource: str) -> None:
        """After a restart: a resource of the checkpoint, whose plugin is not back."""
        self.endpoints[resource] = PluginEndpoint(resource, self._history.calls)

    async def cut(self, resource: str) -> None:
        """End the newest plugin's stream from this side."""
        await self._newest[resource].close()

    async def close(self) -> None:
        """The process is gone: nothing is marked, streams just break."""
        for watch in self._watches:
            watch.cancel()
        for connection in list(self._open):
            connection.is_killed = True
            await connection.close()
        await asyncio.gather(*self._watches, return_exceptions=True)

    def _check(self, request: wire.RegisterRequest) -> None:
        if request.version != VERSION:
            raise DeviceError(
                f'requested API version "{request.version}" is not supported by kubelet. Supported version is ["{VERSION}"]'
            )
        if "/" not in request.resource_name or "kubernetes.io/" in request.resource_name:
            raise DeviceError(f'the ResourceName "{request.resource_name}" is invalid')

    async def _connect(self, connection: PluginConnection) -> None:
        """Dial, ask for options, open the stream: all but the last before Register is answered."""
        resource = connection.resource
        self._newest[resource] = connection
        self._open.add(connection)
        try:
            await connection.dial(self._timeouts.dial_seconds)
            options = await self._options(connection)
        except BaseException:
            self._newest.pop(resource, None)
            await self._close(connection)
            raise
        self.endpoints[resource] = PluginEndpoint(resource, self._history.calls, connection=connection, options=options)
        watch = asyncio.create_task(self._watch(connection))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _options(self, connection: PluginConnection) -> wire.DevicePluginOptions:
        """What the plugin answers now; the options inside its Register request are not looked at."""
        try:
            options: wire.DevicePluginOptions = await connection.plugin.GetDevicePluginOptions(wire.Empty())
        except grpc.aio.AioRpcError as error:
            raise DeviceError(f"failed to get device plugin options: {describe_error(error)}") from error
        return options

    async def _watch(self, connection: PluginConnection) -> None:
        resource = connection.resource

        def receive(devices: Collection[wire.Device]) -> None:
            self._books.receive(resource, devices)
            self._changed()

        await connection.watch(receive)
        newest = self._newest.pop(resource, None)
        if newest is not None:
            await self._close(newest)
            self._disconnected(resource)
        self._changed()

    async def _close(self, connection: PluginConnection) -> None:
        self._open.discard(connection)
        await connection.close()

    def _disconnected(self, resource: str) -> None:
        if endpoint := self.endpoints.get(resource):
            self._books.mark_unhealthy(resource)
            endpoint.is_stopped = True
