"""Every recorded bind call, through the real verb, against an API server with the cluster of that time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from extender.metrics import ExtenderMetrics
from tests.fakes.api import Object
from tests.support import recorded_requests
from tests.support.in_memory_extender import InMemoryExtender
from tests.wire import oracle
from vrampack.kube.aio_client import Configuration
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials
from vrampack.simulator.apiserver import ApiServer

BINDS = recorded_requests.recording_names("bind")


def pending_pod(bind: str) -> Object:
    """The pod that a recorded bind names, as the filter call before it showed it: not bound."""
    uid = json.loads(recorded_requests.read_recording(bind))["PodUID"]
    pods = [recorded_requests.recorded_pod(name) for name in recorded_requests.recording_names("filter")]
    return next(pod for pod in pods if pod["metadata"]["uid"] == uid)


@asynccontextmanager
async def running(pods: Sequence[Object]) -> AsyncIterator[tuple[InMemoryExtender, ApiServer]]:
    """An extender over the recorded nodes and these pods, with a real API server behind it."""
    async with ApiServer() as server:
        for node in recorded_requests.recorded_nodes():
            server.restore({"kind": "Node", **node})
        for pod in pods:
            server.restore({"kind": "Pod", **pod})
        api = Api(Credentials(Configuration(host=server.url)), observe=ExtenderMetrics("test").observe_call)
        try:
            yield InMemoryExtender(recorded_requests.recorded_nodes(), pods, api=api), server
        finally:
            await api.close()


@pytest.mark.parametrize("name", BINDS)
async def test_bind_takes_the_last_four_units(name: str) -> None:
    """11 of 15 are held by a pod without a record: the oracle says that 4 fit, and they are written down."""
    pod = pending_pod(name)
    pods = [each for each in recorded_requests.recorded_pods() if each["metadata"]["name"] != "binpack-1"]
    assert oracle.oracle_filter(recorded_requests.recorded_nodes(), pods, pod, ["gpu-node-0"]).passed == ["gpu-node-0"]
    async with running([*pods, pod]) as (extender, server):
        reply = await extender.post_verb(
            "bind", recorded_requests.read_recording(name), recorded_requests.read_headers(name)
        )
        seen = server.get("pods", "binpack-1")
    assert (reply.status, reply.json()) == (200, {"Error": ""})
    assert seen["spec"]["nodeName"] == "gpu-node-0"
    assert int(seen["metadata"]["resourceVersion"]) > 0
    notes = seen["metadata"]["annotations"]
    assert json.loads(notes["vrampack.dev/allocation"]) == {
        "v": 1,
        "cards": [{"uuid": None, "index": 0, "units": 4, "whole": False}],
        "containers": {"c": [{"uuid": None, "units": 4}]},
    }
    assert notes["visible-devices.vrampack.dev/c"] == "0"
    assert "limit-mib.vrampack.dev/c" not in notes
    assert json.loads(notes["scheduler.framework.gpushare.allocation"]) == {"0": {"0": 4}}
    gpushare = {
        key.removeprefix("ALIYUN_COM_GPU_MEM_"): value for key, value in notes.items() if key.startswith("ALIYUN")
    }
    assert int(gpushare.pop("ASSUME_TIME")) > 0
    assert gpushare == {"IDX": "0", "POD": "4", "DEV": "15", "ASSIGNED": "false"}
    rebuilt = {**seen, "metadata": {**seen["metadata"]}}
    assert [card.used for card in oracle.loaded_cards(recorded_requests.recorded_nodes()[1], [*pods, rebuilt])] == [15]


@pytest.mark.parametrize("name", BINDS)
async def test_bind_is_refused_where_the_card_filled_up(name: str) -> None:
    """Two more pods on the node since filter: nothing is sent, and the text is the one filter would give."""
    pod = pending_pod(name)
    late = next(each for each in recorded_requests.recorded_pods() if each["metadata"]["name"] == "binpack-1")
    late["metadata"] = {**late["metadata"], "name": "late", "uid": "late"}
    pods = [each for each in recorded_requests.recorded_pods() if each["metadata"]["name"] == "filler-0"]
    want = oracle.oracle_filter(recorded_requests.recorded_nodes(), [*pods, late], pod, ["gpu-node-0"]).later[
        "gpu-node-0"
    ]
    async with running([*pods, late, pod]) as (extender, server):
        before = server.resource_version
        reply = await extender.post_verb("bind", recorded_requests.read_recording(name))
        assert server.resource_version == before
        assert extender.ledger.places.list_reservations() == []
    assert reply.status == 200
    assert want in reply.json()["Error"]


@pytest.mark.parametrize("name", BINDS)
async def test_bind_on_the_recorded_cluster_is_refused(name: str) -> None:
    """There, the pod of that name is bound already, without our record, or has another uid by now."""
    async with running(recorded_requests.recorded_pods()) as (extender, server):
        before, state = server.resource_version, extender.state()
        reply = await extender.post_verb("bind", recorded_requests.read_recording(name))
        assert server.resource_version == before
        assert extender.state() == state
    known = {pod["metadata"]["uid"] for pod in recorded_requests.recorded_pods()}
    bound = json.loads(recorded_requests.read_recording(name))["PodUID"] in known
    assert reply.status == 200
    assert ("already bound" if bound else "uid") in reply.json()["Error"]


async def test_a_repeated_bind_succeeds_and_writes_nothing() -> None:
    """The answer to the first was lost: the pod is bound by us to this node, and that is what was asked for."""
    name = BINDS[0]
    filler = [each for each in recorded_requests.recorded_pods() if each["metadata"]["name"] == "filler-0"]
    async with running([*filler, pending_pod(name)]) as (extender, server):
        first = await extender.post_verb("bind", recorded_requests.read_recording(name))
        version = server.resource_version
        # The watch is slow: the ledger still shows a reservation.
        second = await extender.post_verb("bind", recorded_requests.read_recording(name))
        assert server.resource_version == version
    assert (first.json(), second.json()) == ({"Error": ""}, {"Error": ""})
