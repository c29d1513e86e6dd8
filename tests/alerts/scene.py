"""What raises alerts: the embedded cluster with the real extender as a process, whose way to the API server can be cut."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from tests.alerts.monitoring_stack import MonitoringStack, run_monitoring
from tests.alerts.scrape_config import ScrapeTarget
from tests.fakes.proxy import FaultProxy
from tests.support.processes import LOOPBACK, ManagedProcess, choose_free_ports
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import AgentConfiguration
from vrampack.agent.status.http import StatusPages, serve_status
from vrampack.agent.status.schema import LimitsStatus
from vrampack.cli.demo.extender_process import build_scheduler_settings
from vrampack.cli.demo.objects import CardModel, build_node_object
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.embedded_cluster import run_embedded_cluster
from vrampack.simulator.kubeconfig import write_kubeconfig

Programs = Mapping[str, Path]
WITHIN_SECONDS = 60
SERVE = ("-m", "vrampack.cli", "serve")
"""As arguments of Python."""
T4 = CardModel("Tesla-T4", 15360)
"""15 units."""


@dataclass(frozen=True, slots=True)
class ExtenderUnderWatch:
    """An extender as a process. It may be killed, and started again at the same addresses."""

    process: ManagedProcess
    url_prefix: str
    health: str
    """HOST:PORT of its health listener."""

    @property
    def target(self) -> ScrapeTarget:
        return ScrapeTarget("vrampack-scheduler", self.health, "vrampack-scheduler-0", "extender")

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        self.process.start()
        await asyncio.to_thread(self.process.wait_ready, f"http://{self.health}/readyz", timeout_seconds=WITHIN_SECONDS)


@dataclass(frozen=True, slots=True)
class AlertScene:
    """One cluster and who watches it."""

    api: ApiServer
    proxy: FaultProxy
    """Between the extender and the API server; the scheduler and the tests have their own way."""
    extender: ExtenderUnderWatch
    monitoring: MonitoringStack

    async def wait_until(self, is_reached: Callable[[], bool], what: str) -> None:
        """Wait for a state of the cluster."""
        changed = asyncio.Event()
        self.api.store.subscribe(changed.set)
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                while not is_reached():
                    changed.clear()
                    await changed.wait()
        except TimeoutError as error:
            raise TimeoutError(f"{what}: not within {WITHIN_SECONDS} s\n{self.extender.process.log_tail()}") from error

    async def wait_until_bound(self, *names: str) -> None:
        def are_bound() -> bool:
            bound = {pod["metadata"]["name"] for pod in self.api.list_pods() if pod["spec"].get("nodeName")}
            return bound.issuperset(names)

        await self.wait_until(are_bound, f"{names} bound")


@asynccontextmanager
async def run_scene(
    folder: Path,
    programs: Programs,
    nodes: Mapping[str, Sequence[CardModel]],
    *,
    program: Sequence[str | Path] = SERVE,
    configuration: str = "",
) -> AsyncIterator[AlertScene]:
    """A cluster of these nodes, each with an agent's page: those of an agent that was asked for nothing yet."""
    ports = choose_free_ports(2)
    settings = build_scheduler_settings(f"http://{LOOPBACK}:{ports[0]}/gpushare-scheduler")
    async with (
        run_embedded_cluster(settings) as api,
        FaultProxy(urlsplit(api.url).port or 0) as proxy,
        run_extender(folder, proxy.url, configuration=configuration, ports=ports, program=program) as extender,
        run_agent_page() as address,
        run_monitoring(
            folder, programs, [extender.target, *(agent_target(address, name) for name in nodes)]
        ) as monitoring,
    ):
        for name, cards in nodes.items():
            api.create(build_node_object(name, "10.0.0.1", cards))
        yield AlertScene(api, proxy, extender, monitoring)


@asynccontextmanager
async def run_extender(
    folder: Path,
    api_url: str,
    *,
    configuration: str = "",
    ports: list[int] | None = None,
    program: Sequence[str | Path] = SERVE,
) -> AsyncIterator[ExtenderUnderWatch]:
    """The extender of that API server, ready; killed when the block ends. `program` takes the flags of `vrampack serve`."""
    verbs, health = ports or choose_free_ports(2)
    file = folder / "extender.yaml"
    file.write_text(
        "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"
        f"listen: {{verbs: '{LOOPBACK}:{verbs}', health: '{LOOPBACK}:{health}'}}\n{configuration}"
    )
    arguments = ("--config", file, "--kubeconfig", write_kubeconfig(folder, api_url), "--ready-after", "0")
    process = ManagedProcess("extender", (sys.executable, *program, *arguments), directory=folder)
    extender = ExtenderUnderWatch(process, f"http://{LOOPBACK}:{verbs}/gpushare-scheduler", f"{LOOPBACK}:{health}")
    try:
        await extender.start()
        yield extender
    finally:
        process.kill()


def agent_target(address: str, node: str) -> ScrapeTarget:
    return ScrapeTarget("vrampack-agent", address, f"vrampack-agent-{node}", "agent", node=node)


@asynccontextmanager
async def run_agent_page() -> AsyncIterator[str]:
    """The page of agents whose nodes only the API server knows; its HOST:PORT."""
    address = f"{LOOPBACK}:{choose_free_ports(1)[0]}"
    settings = AgentConfiguration.model_validate(
        {
            "apiVersion": "vrampack.dev/v1",
            "kind": "AgentConfiguration",
            "listen": {"health": address, "status_socket": ""},
        }
    )
    pages = StatusPages(AgentMetrics("test", node=""), lambda: "", LimitsStatus)
    async with serve_status(settings, pages):
        yield address


async def filter_pod(scene: AlertScene, name: str) -> list[str]:
    """Call filter as a scheduler does; the nodes that fit."""
    body = {
        "Pod": scene.api.get("pods", name),
        "NodeNames": [node["metadata"]["name"] for node in scene.api.list_nodes()],
    }
    url = f"{scene.extender.url_prefix}/filter"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        names: list[str] | None = (await answer.json(content_type=None))["NodeNames"]
    return names or []
