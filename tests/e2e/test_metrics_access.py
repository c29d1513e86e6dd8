"""The agent's metrics behind TLS and a token: RBAC decides who reads them, asked with the rights that the chart grants for it."""

from __future__ import annotations

import asyncio
import ssl
import time
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.e2e.metrics_by_token import with_metrics_by_token
from tests.support.control_plane.cluster import ControlPlane
from tests.support.processes import LOOPBACK, choose_free_ports
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import AgentConfiguration
from vrampack.agent.status.http import METRICS_PATH, StatusPages, serve_status
from vrampack.agent.status.metrics_access import MetricsAccess
from vrampack.agent.status.schema import LimitsStatus
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials

SYSTEM, AGENT = "vrampack-system", "vrampack-agent"


async def test_metrics_are_served_only_to_accounts_with_the_right_to_get_them(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    namespace = cluster.namespace()
    for name in ("scraper", "stranger"):
        cluster.request_ok("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    reader = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "vrampack-test-scraper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "vrampack-metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": namespace}],
    }
    tokens = {
        "": HTTPStatus.UNAUTHORIZED,
        "made-up": HTTPStatus.UNAUTHORIZED,
        cluster.token(namespace, "stranger"): HTTPStatus.FORBIDDEN,
        cluster.token(namespace, "scraper"): HTTPStatus.OK,
    }
    with with_metrics_by_token(cluster, [reader]):
        assert await ask_with_tokens(cluster, list(tokens)) == list(tokens.values())


async def ask_with_tokens(cluster: ControlPlane, tokens: list[str]) -> list[int]:
    """What an agent's listener answers to each; RBAC is asked again until the rights that were just given are seen."""
    pair = cluster.authority.issue_pair("agent-metrics")
    metrics_port, health_port = choose_free_ports(2)
    settings = AgentConfiguration.model_validate(
        {
            "apiVersion": "vrampack.dev/v1",
            "kind": "AgentConfiguration",
            "listen": {"health": f"{LOOPBACK}:{health_port}", "status_socket": ""},
            "metrics": {
                "address": f"{LOOPBACK}:{metrics_port}",
                "authorization": "token",
                "tls": {"cert_file": str(pair.certificate), "key_file": str(pair.key)},
            },
        }
    )
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    url = f"https://{LOOPBACK}:{metrics_port}{METRICS_PATH}"
    api = Api(await load_credentials(cluster.kubeconfig(SYSTEM, AGENT)))
    pages = StatusPages(AgentMetrics("test", node="n"), lambda: "", LimitsStatus)
    try:
        while True:
            access = MetricsAccess(api, METRICS_PATH, clock=time.monotonic)
            async with serve_status(settings, pages, metrics_access=access):
                said = [await asyncio.to_thread(ask, url, each, context) for each in tokens]
                assert await asyncio.to_thread(ask, f"http://{LOOPBACK}:{health_port}/metrics", "", None) == 404
                assert await asyncio.to_thread(ask, f"http://{LOOPBACK}:{health_port}/healthz", "", None) == 200
            if HTTPStatus.SERVICE_UNAVAILABLE not in said and HTTPStatus.OK in said:
                return said
    finally:
        await api.close()


def ask(url: str, token: str, context: ssl.SSLContext | None) -> int:
    request = Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310 - of our own listeners
    try:
        with urlopen(request, timeout=10, context=context) as answer:  # noqa: S310
            return int(answer.status)
    except HTTPError as error:
        return error.code
