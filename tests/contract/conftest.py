"""The two servers that the contract binds: the embedded one, and (marked e2e) the real one in a cluster of its own.

The real one is not the control plane of tests/e2e: here nothing of ours is installed, so that the API server is
seen plain, and it is restarted to make it forget.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import urllib.parse
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.contract.server import ContractServer
from tests.support.control_plane.cluster import ControlPlane
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.workload_controller import WorkloadController

REAL = "real"


@pytest.fixture(scope="module")
def plain_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without anything of ours in it."""
    with ControlPlane.start(tmp_path_factory.mktemp("contract")) as running:
        yield running


@pytest.fixture(params=["embedded", pytest.param(REAL, marks=pytest.mark.e2e)])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ContractServer]:
    """The API server under test, with an empty namespace."""
    if request.param == REAL:
        async with _real(request.getfixturevalue("plain_cluster")) as real:
            yield real
    else:
        async with _embedded() as embedded:
            yield embedded


@asynccontextmanager
async def _embedded() -> AsyncIterator[ContractServer]:
    """With the workloads' controllers and without a kubelet, as the real one."""
    async with ApiServer() as api, aiohttp.ClientSession() as session:

        async def forget() -> None:
            api.compact()

        controllers = asyncio.create_task(WorkloadController(api.store).run())
        yield ContractServer(session, api.url, namespace=f"contract-{uuid.uuid4().hex[:8]}", forget=forget)
        assert not controllers.done(), controllers.exception()
        controllers.cancel()


@asynccontextmanager
async def _real(cluster: ControlPlane) -> AsyncIterator[ContractServer]:
    headers = {"Authorization": f"Bearer {cluster.admin_token}"}
    tls = ssl.create_default_context(cafile=cluster.ca_file)
    namespace = cluster.namespace("contract")

    async def forget() -> None:
        _forget(cluster)

    async with aiohttp.ClientSession(headers=headers) as session:
        server = ContractServer(session, cluster.api_url, namespace=namespace, forget=forget, tls=tls)
        yield server
        for collection in (server.statefulsets, server.deployments, server.pods):
            await server.call_ok("DELETE", collection, gracePeriodSeconds=0)
        for name in server.made_nodes:
            await server.call("DELETE", f"/api/v1/nodes/{name}")
        # The namespace stays: to end one takes the controller manager a hundred calls.


def _forget(cluster: ControlPlane) -> None:
    """Compact etcd, and restart the API server: its watch cache would still answer for a long time."""
    newest = cluster.request_ok("GET", "/api/v1/nodes")["metadata"]["resourceVersion"]
    flag = next(word for word in cluster.etcd._command if word.startswith("--listen-client-urls="))
    etcd = http.client.HTTPConnection(urllib.parse.urlsplit(flag.partition("=")[2]).netloc, timeout=10)
    etcd.request("POST", "/v3/kv/compaction", json.dumps({"revision": newest, "physical": True}))
    assert etcd.getresponse().status == http.client.OK
    etcd.close()
    cluster.apiserver.kill()
    cluster.start_apiserver()
