"""Answers kubelet's five calls of `v1beta1.DevicePlugin`.

`Allocate` does not know the pod and decides nothing: a container's card is in its pod's annotation, and the container gets it
when it starts (`admission/injection.py`). `PreStartContainer` can find the pod, so it asks the fence.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NoReturn, TypeAlias

import grpc
import grpc.aio

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.admission.injection import Injection
from vrampack.agent.admission.prestart import PreStart
from vrampack.agent.device_plugin.preferred_allocation import PreferredAllocation
from vrampack.agent.inventory.advertisement import Advertisement
from vrampack.agent.kubelet import device_ids
from vrampack.agent.kubelet.generated import deviceplugin_pb2 as api
from vrampack.agent.kubelet.generated.deviceplugin_pb2_grpc import DevicePluginServicer
from vrampack.agent.metrics import AgentMetrics

log = logging.getLogger(__name__)

GrpcContext: TypeAlias = "grpc.aio.ServicerContext[object, object]"
PLUGIN_OPTIONS = api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)


class DevicePlugin(DevicePluginServicer):
    """One node's plugin; the same object serves every registration."""

    def __init__(
        self,
        advertisement: Advertisement,
        prestart: PreStart,
        preferred_allocation: PreferredAllocation,
        metrics: AgentMetrics,
        *,
        injection: Injection,
    ) -> None:
        self._injection = injection
        self._advertisement = advertisement
        self._prestart = prestart
        self._preferred_allocation = preferred_allocation
        self._metrics = metrics
        self.open_streams = 0
        """How many streams kubelet has open now."""
        self.pending_starts = 0
        """How many containers wait for permission to start."""

    async def GetDevicePluginOptions(self, request: api.Empty, context: GrpcContext) -> api.DevicePluginOptions:  # noqa: ARG002, N802 - gRPC's
        return PLUGIN_OPTIONS

    async def ListAndWatch(self, request: api.Empty, context: GrpcContext) -> AsyncIterator[api.ListAndWatchResponse]:  # noqa: ARG002, N802 - gRPC's
        """Send the whole list, and again at each change."""
        self.open_streams += 1
        try:
            async for advertised in self._advertisement.watch_changes():
                yield device_ids.build_device_list(advertised.listed_cards)
        finally:
            self.open_streams -= 1

    async def GetPreferredAllocation(  # noqa: N802 - gRPC's
        self,
        request: api.PreferredAllocationRequest,
        context: GrpcContext,  # noqa: ARG002 - gRPC's
    ) -> api.PreferredAllocationResponse:
        """Give a hint, so that kubelet's allocations name the container's real card. An error would fail the pod for good."""
        return api.PreferredAllocationResponse(
            container_responses=[
                api.ContainerPreferredAllocationResponse(
                    deviceIDs=device_ids.choose_preferred_ids(
                        each.available_deviceIDs,
                        each.must_include_deviceIDs,
                        each.allocation_size,
                        self._preferred_allocation.guess_wanted_units(each.allocation_size),
                    )
                )
                for each in request.container_requests
            ]
        )

    async def Allocate(self, request: api.AllocateRequest, context: GrpcContext) -> api.AllocateResponse:  # noqa: N802 - gRPC's
        """Answer without a card: a CDI name without meaning until the container starts, or variables that the pod overrides.

        Tells the fence that these ids are handed out again.
        """
        started = time.monotonic()
        asked = [list(each.devices_ids) for each in request.container_requests]
        unknown = self._find_unknown_id(each for ids in asked for each in ids)
        if unknown:
            self._metrics.allocate_errors.inc()
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"device {unknown} is not one of this node's")
        for ids in asked:
            self._prestart.release_ids(ids)
        answer = api.AllocateResponse(container_responses=[self._injection.build_answer() for _ in asked])
        self._metrics.allocate_seconds.observe(time.monotonic() - started)
        return answer

    async def PreStartContainer(  # noqa: N802 - gRPC's
        self, request: api.PreStartContainerRequest, context: GrpcContext
    ) -> api.PreStartContainerResponse:
        """Ask the fence. An error keeps the container from starting; kubelet asks again."""
        started = time.monotonic()
        self.pending_starts += 1
        try:
            await self._prestart.admit_start(frozenset(request.devices_ids))
        except RefusedStartError as error:
            self._metrics.starts.labels(error.reason).inc()
            log.warning("start refused reason=%s text=%s", error.reason, error.text)
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, error.text)
        except asyncio.CancelledError:
            self._metrics.starts.labels("deadline").inc()
            log.warning("start refused reason=deadline seconds=%.1f", time.monotonic() - started)
            raise
        finally:
            self.pending_starts -= 1
            self._metrics.start_seconds.observe(time.monotonic() - started)
        return api.PreStartContainerResponse()

    def _find_unknown_id(self, ids: Iterable[str]) -> str:
        """One id that no card of ours has; empty when all are ours."""
        cards: Sequence[str | None] = [card.uuid for card in self._advertisement.current.cards]
        return next((each for each in ids if device_ids.parse_card_uuid(each) not in cards), "")


async def _abort(context: GrpcContext, code: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(code, text)
    raise AssertionError("abort raises")  # pragma: no cover - the type checker cannot know
