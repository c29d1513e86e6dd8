"""NVIDIA's DRA driver on the same cards: seen in its ResourceSlices, and the node offers nothing until it is gone."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.fakes.faults import FaultBuilder
from tests.fakes.proxy import FaultProxy
from tests.support.recorded_api_calls import RecordedApiCalls, open_api
from vrampack.agent.device_plugin.resource_slices import ResourceSliceCheck
from vrampack.agent.inventory.advertisement import Advertisement
from vrampack.cards.node import CardFacts
from vrampack.kube.dra_objects import ResourceSliceObject
from vrampack.simulator.apiserver import ApiServer

GPU, INSTANCE = "GPU-a", "MIG-b"
CARDS = (CardFacts(0, 15, 16130, GPU), CardFacts(1, 9, 9984, INSTANCE, mig_parent="GPU-b"))


class SliceHarness:
    """A check through a proxy: what it answers is what the cluster has. Behind it, the kind does not exist."""

    def __init__(self, proxy: FaultProxy, check: ResourceSliceCheck, advertisement: Advertisement) -> None:
        self._proxy = proxy
        self._check = check
        self._advertisement = advertisement

    async def check_slices(self, *devices: dict[str, Any], status: int = 200, driver: str = "gpu.nvidia.com") -> str:
        """Look once at a slice with these devices, or at a refusal; the problem found."""
        items = [{"metadata": {"name": "s"}, "spec": {"driver": driver, "devices": list(devices)}}]
        body = {"kind": "ResourceSliceList", "metadata": {"resourceVersion": "1"}, "items": items}
        self._slices.answer(status, body if status == 200 else None, times=1)
        return await self.check_unanswered()

    async def check_unanswered(self) -> str:
        await self._check.check_slices()
        return self._advertisement.current.problem

    @property
    def _slices(self) -> FaultBuilder:
        return self._proxy.when("GET", "^/apis/resource.k8s.io/v1/resourceslices")


def a_device(**attributes: str) -> dict[str, Any]:
    return {"name": "gpu-0", "attributes": {name: {"string": value} for name, value in attributes.items()}}


@pytest.fixture
async def node() -> AsyncIterator[SliceHarness]:
    advertisement = Advertisement(find_list_problem=lambda _cards: "")
    advertisement.update_cards(CARDS, "")
    async with (
        ApiServer() as server,
        FaultProxy(int(server.url.rpartition(":")[2])) as proxy,
        open_api(proxy.url, RecordedApiCalls()) as api,
    ):
        yield SliceHarness(proxy, ResourceSliceCheck(api, "gpu-0", advertisement), advertisement)


CASES = {
    "our card": (a_device(uuid=GPU), GPU),
    "our instance": (a_device(uuid=INSTANCE), INSTANCE),
    "the card that our instance is of": (a_device(uuid="GPU-b"), "GPU-b"),
    "an instance of our card": (a_device(uuid="MIG-other", parentUUID=GPU), GPU),
    "with the driver's name": ({"name": "x", "attributes": {"gpu.nvidia.com/uuid": {"string": GPU}}}, GPU),
    "another card": (a_device(uuid="GPU-z"), ""),
    "a number": ({"name": "x", "attributes": {"uuid": {"int": 5}}}, ""),
    "no attributes": ({"name": "x"}, ""),
}


@pytest.mark.parametrize(("device", "uuid"), CASES.values(), ids=CASES)
async def test_a_resource_slice_with_our_card_withdraws_the_offer(
    node: SliceHarness, device: dict[str, Any], uuid: str
) -> None:
    problem = await node.check_slices(device)
    assert problem.startswith(
        f"NVIDIA's DRA driver offers card {uuid} of this node as well; set resources.gpus"
    ) == bool(uuid)
    assert bool(problem) == bool(uuid)


async def test_cards_are_offered_again_once_the_slices_are_gone(node: SliceHarness) -> None:
    assert await node.check_slices(a_device(uuid=GPU))
    assert await node.check_slices() == ""


async def test_first_check_waits_until_the_cards_are_known() -> None:
    """With no cards known, no slice would conflict, and the next check comes two minutes later."""
    advertisement = Advertisement(find_list_problem=lambda _cards: "")
    made = msgspec.json.decode(
        json.dumps({"spec": {"driver": "gpu.nvidia.com", "devices": [a_device(uuid=GPU)]}}), type=ResourceSliceObject
    )
    asked = asyncio.Event()

    class Slices:
        async def list_resource_slices(self, **_query: object) -> list[ResourceSliceObject]:
            asked.set()
            return [made]

    running = asyncio.create_task(ResourceSliceCheck(Slices(), "gpu-0", advertisement).run())
    await asyncio.sleep(0)
    assert not asked.is_set()
    advertisement.update_cards(CARDS, "")
    async with asyncio.timeout(5):
        await asked.wait()
    await asyncio.sleep(0)
    assert GPU in advertisement.current.problem
    running.cancel()


async def test_slices_of_other_drivers_are_no_conflict(node: SliceHarness) -> None:
    assert await node.check_slices(a_device(uuid=GPU), driver="compute-domain.nvidia.com") == ""


async def test_an_unanswered_check_leaves_the_node_as_it_was(
    node: SliceHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal is logged once; a cluster without the kind has no conflict."""
    assert await node.check_slices(status=403) == ""
    blocked = await node.check_slices(a_device(uuid=GPU))
    assert await node.check_slices(status=403) == blocked
    assert await node.check_slices(status=403) == blocked
    assert await node.check_slices(status=500) == blocked
    warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [("lacks the right to list resourceslices" in each) for each in warned] == [True, True, False]
    assert await node.check_unanswered() == ""
