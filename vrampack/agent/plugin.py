"""What kubelet asks of the plugin: the five calls of `v1beta1.DevicePlugin`.

`Allocate` does not know the pod and decides nothing: a container's card is in its pod's own annotation, which kubelet
makes its environment. `PreStartContainer` knows it, and is where the fence stands.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import NoReturn, TypeAlias

import grpc
import grpc.aio

from vrampack.agent import devices
from vrampack.agent.board import Board
from vrampack.agent.errors import RefusedStartError
from vrampack.agent.kubelet import deviceplugin_pb2 as api
from vrampack.agent.kubelet.deviceplugin_pb2_grpc import DevicePluginServicer
from vrampack.agent.metrics import Metrics
from vrampack.agent.starts import Starts
from vrampack.agent.steering import Steering

log = logging.getLogger(__name__)

Call: TypeAlias = "grpc.aio.ServicerContext[object, object]"
OPTIONS = api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
NO_CARD = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""What NVIDIA's runtime takes for: no card, and none of the driver's files. The pod's own environment wins over it."""


class DevicePlugin(DevicePluginServicer):
    """One node's plugin; the same object serves every registration."""

    def __init__(
        self,
        board: Board,
        starts: Starts,
        steering: Steering,
        metrics: Metrics,
        *,
        environment: Callable[[Iterable[str]], Mapping[str, str]],
        mounts: Callable[[], Mapping[str, str]],
    ) -> None:
        """`environment`: what a container is told of these ids. `mounts`: what of the node it is shown, whichever they are."""
        self._environment = environment
        self._mounts = mounts
        self._board = board
        self._starts = starts
        self._steering = steering
        self._metrics = metrics
        self.streams = 0
        """How many times kubelet listens now."""
        self.starting = 0
        """How many containers wait for their leave to start."""

    async def GetDevicePluginOptions(self, request: api.Empty, context: Call) -> api.DevicePluginOptions:  # noqa: ARG002, N802 - gRPC's
        return OPTIONS

    async def ListAndWatch(self, request: api.Empty, context: Call) -> AsyncIterator[api.ListAndWatchResponse]:  # noqa: ARG002, N802 - gRPC's
        """The whole list, and again at each change."""
        self.streams += 1
        try:
            async for offer in self._board.offers():
                yield devices.device_list(offer.listed)
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(  # noqa: N802 - gRPC's
        self,
        request: api.PreferredAllocationRequest,
        context: Call,  # noqa: ARG002 - gRPC's
    ) -> api.PreferredAllocationResponse:
        """A hint, so that kubelet's books name the card that the container has. An error would fail the pod for good."""
        return api.PreferredAllocationResponse(
            container_responses=[
                api.ContainerPreferredAllocationResponse(
                    deviceIDs=devices.preferred(
                        each.available_deviceIDs,
                        each.must_include_deviceIDs,
                        each.allocation_size,
                        self._steering.wanted(each.allocation_size),
                    )
                )
                for each in request.container_requests
            ]
        )

    async def Allocate(self, request: api.AllocateRequest, context: Call) -> api.AllocateResponse:  # noqa: N802 - gRPC's
        """No card for whoever has none in its annotations, or that of the ids where nobody else could say.

        The fence learns that these ids are handed out anew.
        """
        started = time.monotonic()
        asked = [list(each.devices_ids) for each in request.container_requests]
        unknown = self._unknown(each for ids in asked for each in ids)
        if unknown:
            self._metrics.allocate_errors.inc()
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"device {unknown} is none of this node's")
        for ids in asked:
            self._starts.allocated(ids)
        mounts = [
            api.Mount(host_path=host, container_path=inside, read_only=True) for inside, host in self._mounts().items()
        ]
        answer = api.AllocateResponse(
            container_responses=[
                api.ContainerAllocateResponse(envs=self._environment(ids), mounts=mounts) for ids in asked
            ]
        )
        self._metrics.allocate_seconds.observe(time.monotonic() - started)
        return answer

    async def PreStartContainer(  # noqa: N802 - gRPC's
        self, request: api.PreStartContainerRequest, context: Call
    ) -> api.PreStartContainerResponse:
        """The fence. An error keeps the container from starting; kubelet asks again."""
        started = time.monotonic()
        self.starting += 1
        try:
            await self._starts.start(frozenset(request.devices_ids))
        except RefusedStartError as error:
            self._metrics.starts.labels(error.reason).inc()
            log.warning("start refused reason=%s text=%s", error.reason, error.text)
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, error.text)
        finally:
            self.starting -= 1
            self._metrics.start_seconds.observe(time.monotonic() - started)
        return api.PreStartContainerResponse()

    def _unknown(self, ids: Iterable[str]) -> str:
        """One id that no card of ours has; empty when all are ours."""
        cards: Sequence[str | None] = [card.uuid for card in self._board.offer.cards]
        return next((each for each in ids if devices.card_of(each) not in cards), "")


async def _abort(context: Call, code: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(code, text)
    raise AssertionError("abort raises")  # pragma: no cover - so that the type says it too
