"""Detects NVIDIA's DRA driver on this node: it gives cards to claims that neither kubelet's plugins nor the ledger count.

Its ResourceSlices name the cards by uuid. If one of ours is among them, the node offers no cards, as with NVIDIA's device plugin;
otherwise a claim and a pod could get the same card. We know of no such driver for clusters without resource.k8s.io/v1.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, Protocol

from vrampack.agent.inventory.advertisement import Advertisement
from vrampack.kube.dra_objects import ResourceSliceObject
from vrampack.kube.errors import NoAnswerError, RefusedError

log = logging.getLogger(__name__)

DRA_DRIVER: Final = "gpu.nvidia.com"
UUID_ATTRIBUTES: Final = ("uuid", "parentUUID")
"""Attributes with the uuid of a GPU, or of an instance's GPU, also prefixed by the driver's name. An instance claims its GPU."""
CHECK_INTERVAL_SECONDS = 120.0
"""A new driver is noticed within this time. Each check lists one node's slices, from the API server's cache."""
CALL_SECONDS = 10.0
CURE = (
    "set resources.gpus.enabled=false in that driver's chart, or keep its kubelet plugin off this node; or name the cards of "
    "each in cards.include or cards.exclude"
)


class SliceSource(Protocol):
    """See `kube/client.py`."""

    async def list_resource_slices(
        self, *, node: str, driver: str, timeout_seconds: float
    ) -> list[ResourceSliceObject]: ...


class ResourceSliceCheck:
    """Of one node."""

    def __init__(self, api: SliceSource, node: str, advertisement: Advertisement) -> None:
        self._api = api
        self._node = node
        self._advertisement = advertisement
        self._reported = ""

    async def run(self) -> None:
        """Check as soon as the node's cards are known, and then periodically, until cancelled."""
        async for advertised in self._advertisement.watch_changes():
            if advertised.cards:
                break
        while True:
            try:
                await self.check_slices()
            except Exception:  # whatever a driver writes there must not stop later checks
                log.exception("resource slices not checked")
            await asyncio.sleep(CHECK_INTERVAL_SECONDS * random.uniform(0.8, 1))  # noqa: S311 - spreads load, hides nothing

    async def check_slices(self) -> None:
        """Check once. When the slices cannot be listed, the node stays as it was."""
        try:
            slices = await self._api.list_resource_slices(
                node=self._node, driver=DRA_DRIVER, timeout_seconds=CALL_SECONDS
            )
        except RefusedError as error:
            self._report_refusal(error)
            return
        except NoAnswerError as error:
            self._warn_once(str(error))
            return
        self._reported = ""
        ours = {uuid for card in self._advertisement.current.cards for uuid in (card.uuid, card.mig_parent) if uuid}
        shared = sorted(_list_uuids(slices) & ours)
        text = f"NVIDIA's DRA driver offers card {shared[0]} of this node as well; {CURE}" if shared else ""
        self._advertisement.block("claims", text)

    def _report_refusal(self, error: RefusedError) -> None:
        if error.status == HTTPStatus.NOT_FOUND:
            log.debug("resource slices not checked reason=%s", "this API server has no resource.k8s.io/v1")
            self._advertisement.block("claims", "")
        elif error.status == HTTPStatus.FORBIDDEN:
            self._warn_once(
                "the account lacks the right to list resourceslices of resource.k8s.io; apply the roles again"
            )
        else:
            self._warn_once(str(error))

    def _warn_once(self, error: str) -> None:
        """Log the error once, until it changes or goes away."""
        if error != self._reported:
            log.warning("resource slices not checked error=%s", error)
        self._reported = error


def _list_uuids(slices: Iterable[ResourceSliceObject]) -> set[str]:
    """The uuids of all devices of that driver, and of the GPUs that they are instances of."""
    return {
        value
        for each in slices
        if each.spec.driver == DRA_DRIVER
        for device in each.spec.devices or ()
        for name, attribute in (device.attributes or {}).items()
        if name.removeprefix(f"{DRA_DRIVER}/") in UUID_ATTRIBUTES and (value := attribute.string)
    }
