"""The identity an agent reads with, and what it does when that is refused. Against a real API server, tests/e2e shows what a node may read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fakes.proxy import FaultProxy
from tests.support.recorded_api_calls import RecordedApiCalls
from vrampack.kube.api_request import ApiRequest
from vrampack.kube.credentials import load_credentials
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.node_api import NodeApi, ReadAs, ReadIdentity
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

SOON = 5.0


class NodeApiHarness:
    """The API of node `n`'s agent, behind a proxy that refuses as it is told to, and one pod there."""

    def __init__(self, api: NodeApi, proxy: FaultProxy, identities: list[str]) -> None:
        self.api, self.proxy, self.identities = api, proxy, identities

    async def get_uid(self, name: str = "p") -> bool:
        return await self.api.get_pod_bytes("default", name, timeout_seconds=SOON) is not None


@asynccontextmanager
async def node_api(read_as: ReadAs) -> AsyncIterator[NodeApiHarness]:
    identities: list[str] = []
    async with ApiServer() as server, FaultProxy(int(server.url.rpartition(":")[2])) as proxy:
        with TemporaryDirectory() as folder:
            credentials = await load_credentials(write_kubeconfig(Path(folder), proxy.url))
        for name, node in (("p", "n"), ("q", "elsewhere")):
            server.create(
                {
                    "kind": "Pod",
                    "metadata": {"name": name},
                    "spec": {"nodeName": node, "containers": [{"name": "main"}]},
                }
            )
        reads = ReadIdentity("n", read_as, on_change=identities.append)
        api = NodeApi(credentials, reads, observe=RecordedApiCalls(), user_agent="test")
        try:
            yield NodeApiHarness(api, proxy, identities)
        finally:
            await api.close()


@pytest.mark.parametrize("read_as", ["auto", "node"])
async def test_reads_of_pods_and_nodes_go_out_as_the_node_and_nothing_else_does(read_as: ReadAs) -> None:
    async with node_api(read_as) as stage:
        lease = "/apis/coordination.k8s.io/v1/namespaces/vrampack-system/leases/vrampack-usage-n"
        headers = {
            (method, path): stage.api._build_headers(ApiRequest(method, path))
            for method, path in (
                ("GET", "/api/v1/pods"),
                ("GET", lease),
                ("PATCH", "/api/v1/nodes/n"),
                ("POST", "/api/v1/namespaces/a/events"),
            )
        }
        assert {call for call, sent in headers.items() if sent} == {("GET", "/api/v1/pods")}
        assert headers["GET", "/api/v1/pods"] == {"Impersonate-User": "system:node:n"}
        assert stage.identities == ["node"]


async def test_a_pod_is_found_among_those_of_the_node() -> None:
    async with node_api("node") as stage:
        assert [await stage.get_uid(name) for name in ("p", "q", "none")] == [True, False, False]


async def test_a_pod_is_not_gone_because_another_server_answers_without_it() -> None:
    async with node_api("node") as stage:
        stage.proxy.when("GET", "/pods").answer(200, {"kind": "Status", "metadata": {}, "status": "Failure"})
        with pytest.raises(NoAnswerError, match="no list of the API server"):
            await stage.get_uid()


async def test_a_refused_read_as_the_node_is_repeated_as_the_account() -> None:
    async with node_api("auto") as stage:
        refused = stage.proxy.when("GET", "/pods").answer(403, times=1)
        assert await stage.get_uid()
        assert refused.hits == 1
        assert stage.identities == ["node", "account"]
        assert stage.api._build_headers(ApiRequest("GET", "/api/v1/pods")) == {}


async def test_node_api_switches_back_when_the_account_loses_its_rights() -> None:
    """As when the role is replaced after a cluster upgrade; nothing restarts the agents."""
    async with node_api("auto") as stage:
        stage.proxy.when("GET", "/pods").answer(403, times=1)
        assert await stage.get_uid()
        stage.proxy.when("GET", "/pods").answer(403, times=1)
        assert await stage.get_uid()
        assert stage.identities == ["node", "account", "node"]


@pytest.mark.parametrize("read_as", ["node", "account"])
async def test_a_configured_identity_is_kept_despite_refusals(read_as: ReadAs) -> None:
    async with node_api(read_as) as stage:
        refused = stage.proxy.when("GET", "/pods").answer(403)
        with pytest.raises(RefusedError):
            await stage.get_uid()
        assert refused.hits == 1
        assert stage.identities == [read_as]


async def test_a_refused_write_does_not_switch_the_identity() -> None:
    """The refusal comes from a policy: another identity would not help."""
    async with node_api("auto") as stage:
        stage.proxy.when("PATCH", "/nodes/n").answer(403)
        with pytest.raises(RefusedError):
            await stage.api.patch_node("n", {"metadata": {}}, timeout_seconds=SOON)
        assert stage.identities == ["node"]
