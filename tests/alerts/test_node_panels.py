"""Panels that agents fill: values are counted again from the API's objects, and from what the driver of the tests says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from dashboards.definitions import GPU_APP, GPU_NODE, VRAMPACK
from tests.agent.agent_harness import NODE, AgentHarness
from tests.agent.pod_lifecycle import put_bound_pod, run_pod, start_refused
from tests.alerts.panel_values import PanelValues, expect_rate
from tests.alerts.recount import MIB, TERMS, recount_cluster
from tests.alerts.scene import Programs
from tests.alerts.scrape_config import DCGM_EXPORTER, ScrapeTarget
from tests.alerts.watched_agent import CARD_MIB, PID, run_watched_agent, use_memory
from tests.fakes.kubelet.pods import KubeletPod
from tests.support.preload_clients import PreloadClientProcess
from tests.support.processes import LOOPBACK
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload.wire import MessageKind
from vrampack.agent.nvml.errors import DriverError

PAGE = Path(__file__).parent / "pages" / "dcgm-exporter.txt"
APP = (("namespace", "default"), ("pod", "app-3g-v1"))
USED_MIB = 3193
REFUSED_STARTS = 6


async def test_panels_show_the_memory_of_an_application(tmp_path: Path, programs: Programs) -> None:
    """The library holds its limit: what it has is what its process was granted, and one allocation was refused."""
    async with (
        run_dcgm_exporter() as dcgm,
        run_watched_agent(tmp_path, programs, CARD_MIB, CARD_MIB, starts=False, others=[dcgm]) as (world, monitoring),
    ):
        world.add_library()
        await world.start_agent()
        pod = await run_app(world)
        limit = await asyncio.to_thread(read_limit_bytes, world.api.url, pod.name)
        panels = PanelValues(GPU_APP, monitoring)
        await panels.wait_until_equal("Memory given", {APP: limit})
        async with run_client(world, pod) as program:
            await program.ask(MessageKind.HELLO)
            await program.ask(MessageKind.HOLD, (0, USED_MIB))
            await panels.wait_until_equal("Memory used", {APP: USED_MIB * MIB})
            await panels.wait_until_equal("Used of the limit", {APP: USED_MIB * MIB / limit})
            await panels.wait_until_equal("Refused allocations", {APP: 0.0})
            await program.ask(MessageKind.HOLD, (0, 6144))
            await panels.wait_until_equal("Refused allocations", {APP: expect_rate(1)})
            card = {"UUID": "GPU-0", "gpu": "0", "node": NODE, "container": "main", **dict(APP)}
            await panels.wait_until_equal("Cards", {tuple(sorted(card.items())): limit})
            await panels.wait_until_equal(
                "Utilization of its cards", {APP: 0.87}
            )  # as the page says, for its card alone
            await panels.record_what_lasts()


async def test_panels_show_the_cards_of_a_node(tmp_path: Path, programs: Programs) -> None:
    async with (
        run_dcgm_exporter() as dcgm,
        run_watched_agent(tmp_path, programs, CARD_MIB, CARD_MIB, others=[dcgm], enforcement="watch") as (
            world,
            monitoring,
        ),
    ):
        await run_app(world)
        await use_memory(world, USED_MIB)
        world.driver.failing["GPU-1"] = DriverError("GPU is lost")
        counted = await asyncio.to_thread(recount_cluster, world.api.url)
        (node,) = counted.nodes
        panels = PanelValues(GPU_NODE, monitoring)
        await panels.wait_until_equal("Cards with an agent", {(): len(node.cards)})
        held = zip(node.cards, counted.count_held_units(node), strict=True)
        await panels.wait_until_equal(
            "Held on each card", {await find_labels(panels, card.index): units / card.units for card, units in held}
        )
        await panels.wait_until_equal("In use on each card", {await find_labels(panels, 0): USED_MIB * MIB})
        await panels.wait_until_equal("Unhealthy cards", {await find_labels(panels, 1): 0.0})
        await panels.wait_until_equal(
            "Temperature", {(("gpu", str(index)), ("node", NODE)): value for index, value in ((0, 41), (1, 33))}
        )
        await panels.record_what_lasts()


async def test_panels_show_refused_starts_and_enforcement_modes(tmp_path: Path, programs: Programs) -> None:
    async with run_watched_agent(tmp_path, programs, enforcement="watch") as (world, monitoring):
        await monitoring.wait_until_sampled('vrampack_agent_starts_total{result="no_record"}')
        pod = put_bound_pod(world, "smuggled", is_recorded=False)
        for _ in range(REFUSED_STARTS):
            await start_refused(world, pod)
        panels = PanelValues(VRAMPACK, monitoring)
        await panels.wait_until_equal("Refused starts", {(("result", "no_record"),): expect_rate(REFUSED_STARTS)})
        labels = world.api.get("nodes", NODE)["metadata"]["labels"]
        await panels.wait_until_equal("Who holds limits", {(("mode", labels["vrampack.dev/enforcement"]),): 1})
        await panels.record_what_lasts()


async def run_app(world: AgentHarness) -> KubeletPod:
    """The founding pod: 4 of 15 units of the first card."""
    pod = world.add_bound_pod("app-3g-v1", units=4)
    await run_pod(world, pod)
    world.owners[PID] = CgroupOwner(pod.uid, pod.states["main"].container_id.rpartition("/")[2])
    return pod


def read_limit_bytes(api_url: str, name: str) -> int:
    """What the pod's record says that its container may use."""
    (pod,) = (pod for pod in recount_cluster(api_url).pods if pod.name == f"default/{name}")
    return int(pod.notes[f"{TERMS.limit_mib}main"]) * MIB


async def find_labels(panels: PanelValues, card: int) -> tuple[tuple[str, str], ...]:
    """The labels of a series of that card: its own, and those of the target."""
    (found,) = (labels for labels in await panels.read("Held on each card") if ("gpu", str(card)) in labels)
    return found


@asynccontextmanager
async def run_client(world: AgentHarness, pod: KubeletPod) -> AsyncIterator[PreloadClientProcess]:
    """A process of the pod that asks before it allocates."""
    program = await PreloadClientProcess.started()
    world.owners[program.pid] = world.owners[PID]
    try:
        await program.open(world.preload.folder / "agent.sock")
        yield program
    finally:
        await program.kill()


@asynccontextmanager
async def run_dcgm_exporter() -> AsyncIterator[ScrapeTarget]:
    """A page in the form of dcgm-exporter's."""
    application = web.Application()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=PAGE.read_text())

    application.router.add_get("/metrics", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, 0).start()
        yield ScrapeTarget(
            DCGM_EXPORTER, f"{LOOPBACK}:{runner.addresses[0][1]}", "nvidia-dcgm-exporter-z", DCGM_EXPORTER
        )
    finally:
        await runner.cleanup()
