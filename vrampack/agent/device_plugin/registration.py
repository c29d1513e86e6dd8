"""Keeps the plugin registered with kubelet, whatever kubelet does.

    no cards: idle --cards--> serve on a new socket --> Register --> registered
                                   ^                                    |
                                   '-- kubelet.sock was replaced, or our socket is gone, or kubelet left our stream -'

It serves before it registers, because kubelet calls back while Register is pending. Each registration has a socket of
its own: kubelet deletes all of them when it starts, and gRPC deletes one when its server goes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Final

import grpc
import grpc.aio

from vrampack.agent.device_plugin.device_plugin import PLUGIN_OPTIONS, DevicePlugin
from vrampack.agent.inventory.advertisement import Advertisement
from vrampack.agent.kubelet.errors import KubeletError
from vrampack.agent.kubelet.generated.deviceplugin_pb2 import RegisterRequest
from vrampack.agent.kubelet.generated.deviceplugin_pb2_grpc import RegistrationStub, add_DevicePluginServicer_to_server
from vrampack.agent.metrics import AgentMetrics
from vrampack.backoff import Backoff

log = logging.getLogger(__name__)

VERSION: Final = "v1beta1"
POLL_SECONDS = 0.5
"""How often kubelet's socket is checked: we promise to register again within 2 s."""
REGISTER_SECONDS = 15.0
"""Before it answers, kubelet dials back for up to 10 s."""
BACKOFF = Backoff(first_seconds=0.5, longest_seconds=5.0)
NO_STREAM_SECONDS = 1.0
"""Register again when there is no ListAndWatch stream for this long although kubelet answers: it closed the stream, as it does
when an older registration of the resource ends, even another plugin's."""
STOP_SECONDS = 1.0
"""For calls about a container that is about to start; the ListAndWatch stream never ends by itself and is cut."""


class KubeletRegistration:
    """Registers the plugin with the kubelet of this node, again and again. `run` runs until cancelled."""

    def __init__(
        self,
        plugin: DevicePlugin,
        advertisement: Advertisement,
        metrics: AgentMetrics,
        *,
        folder: Path,
        resource: str,
        on_registered: Callable[[], Awaitable[None]],
    ) -> None:
        self._plugin = plugin
        self._advertisement = advertisement
        self._metrics = metrics
        self._folder = folder
        self._kubelet_socket = str(folder / "kubelet.sock")
        self._resource = resource
        self._on_registered = on_registered
        """Awaited after each registration: containers may have started unasked before it."""
        self._failures = 0
        self._failure = ""
        """Why the last attempt failed."""
        self._must_register_again = False
        self.is_registered = False

    @property
    def problem(self) -> str:
        """Why kubelet has no registration of ours now; empty when it has one."""
        why = f": {self._failure}" if self._failure else ""
        return "" if self.is_registered else f"not registered with kubelet{why}"

    def register_again(self) -> None:
        """Register again: the caller knows that kubelet dropped the registration, which nothing here shows."""
        self._must_register_again = True

    async def run(self) -> None:
        """Register, and again whenever needed, until cancelled."""
        async for offer in self._advertisement.watch_changes():
            if offer.cards:
                break
        while True:
            try:
                await self._serve_registration()
                self._failures = 0
            except KubeletError as error:
                self._failures += 1
                self._failure = str(error)
                log.warning("registration failed failures=%d error=%s", self._failures, error)
                await self._back_off()

    async def _serve_registration(self) -> None:
        """Serve and register; returns when that registration is lost. Raises `KubeletError`."""
        kubelet = self._stat_kubelet_socket()
        path = self._folder / f"vrampack-{secrets.token_hex(4)}.sock"
        server = await self._start_server(path)
        try:
            await self._register(path.name)
            self.is_registered, self._failure = True, ""
            self._metrics.registrations.inc()
            log.info("registered resource=%s socket=%s", self._resource, path.name)
            await self._on_registered()
            await self._wait_until_lost(kubelet, path)
        finally:
            self.is_registered = False
            await server.stop(STOP_SECONDS if self._plugin.pending_starts else None)
            with suppress(OSError):  # gRPC or kubelet may have deleted it
                path.unlink()

    async def _start_server(self, path: Path) -> grpc.aio.Server:
        """Serve the plugin at this path. Raises `KubeletError` when there can be no socket, e.g. on a full file system."""
        server = grpc.aio.server()
        add_DevicePluginServicer_to_server(self._plugin, server)
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:  # which gRPC does not explain
            raise KubeletError(f"no socket can be made in {self._folder}: {_explain_bind(path) or error}") from error
        await server.start()
        return server

    async def _register(self, endpoint: str) -> None:
        request = RegisterRequest(
            version=VERSION, endpoint=endpoint, resource_name=self._resource, options=PLUGIN_OPTIONS
        )
        try:
            async with grpc.aio.insecure_channel(f"unix:{self._kubelet_socket}") as channel:
                await RegistrationStub(channel).Register(request, timeout=REGISTER_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise KubeletError(f"Register: {error.code().name}: {error.details()}") from error

    async def _back_off(self) -> None:
        """Back off, until a new kubelet is there: failures of the last one do not count against it."""
        ends_at, refused = time.monotonic() + BACKOFF.draw_seconds(self._failures), self._find_kubelet_socket()
        while time.monotonic() < ends_at:
            await asyncio.sleep(POLL_SECONDS)
            if self._find_kubelet_socket() != refused:
                self._failures = 0
                return

    async def _wait_until_lost(self, kubelet: tuple[int, int], path: Path) -> None:
        """Check kubelet's socket and ours until this registration is lost."""
        heard_at, self._must_register_again = time.monotonic(), False
        while not self._must_register_again:
            await asyncio.sleep(POLL_SECONDS)
            now = self._find_kubelet_socket()
            if now is None:
                continue  # between two kubelets there is none; the next one creates its socket
            if now != kubelet or not os.path.exists(path):  # noqa: ASYNC240, PTH110 - one stat of a tmpfs
                log.info("kubelet restarted socket=%s", path.name)
                return
            if self._plugin.open_streams:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > NO_STREAM_SECONDS and await self._is_kubelet_listening():
                self._metrics.streams_closed.inc()
                log.warning("stream closed by kubelet socket=%s", path.name)
                return

    async def _is_kubelet_listening(self) -> bool:
        """Whether kubelet runs at all: its socket outlives it."""
        try:
            _, writer = await asyncio.open_unix_connection(self._kubelet_socket)
        except OSError:
            return False
        writer.close()
        return True

    def _stat_kubelet_socket(self) -> tuple[int, int]:
        """The identity of kubelet's current socket."""
        try:
            found = os.stat(self._kubelet_socket)  # noqa: PTH116 - no Path is made twice a second
        except OSError as error:
            raise KubeletError(f"{self._kubelet_socket}: {error.strerror}") from error
        return found.st_ino, found.st_ctime_ns

    def _find_kubelet_socket(self) -> tuple[int, int] | None:
        with suppress(KubeletError):
            return self._stat_kubelet_socket()
        return None


def _explain_bind(path: Path) -> str:
    """Why no socket can be bound there; empty when one can."""
    try:
        with socket(AF_UNIX) as probe:
            probe.bind(str(path))
        path.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""
