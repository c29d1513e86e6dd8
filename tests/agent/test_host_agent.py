"""The agent of a host without Kubernetes, on a driver that says what a test wants: when it is ready, what it shows, how it ends.

`tests/shim/test_standalone.py` tests that containers are held to their limits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.back_end_rows import make_rows
from tests.support.scripted_driver import ScriptedDriver, scripted_gpu
from tests.support.simulated_kmod import SimulatedKmod, write_proc, write_process
from vrampack.agent.host.agent import StandaloneAgent
from vrampack.agent.limits.errors import ImpossibleBackEndError
from vrampack.agent.limits.node_context import NodePaths
from vrampack.agent.limits.preload.backend import PreloadPaths
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.nvml.driver import GpuInventory, GpuUsage
from vrampack.agent.nvml.errors import DriverError
from vrampack.agent.settings import AgentConfiguration, AgentListen

MIB = 1 << 20
T4 = scripted_gpu(memory_mib=15109, model="Tesla T4")
SIX = ["ALIYUN_COM_GPU_MEM_CONTAINER=6", "ALIYUN_COM_GPU_MEM_DEV=15"]


class HostDriver(ScriptedDriver):
    """Of a version that needs the library, unless told otherwise; it holds limits by cgroup."""

    def __init__(self, version: str = "580.95.05") -> None:
        super().__init__(T4)
        self.version = version
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.limits: list[tuple[str, str, int | None]] = []

    async def list_gpus(self) -> GpuInventory:
        await self.may_answer.wait()
        return GpuInventory((await super().list_gpus()).gpus, self.version)

    async def set_limit(self, cgroup_path: str, uuid: str, mib: int | None) -> None:
        self.limits.append((cgroup_path, uuid, mib))


@dataclass
class HostAgentHarness:
    """Its cgroups are files."""

    folder: Path
    driver: HostDriver
    module: SimulatedKmod

    @property
    def node_paths(self) -> NodePaths:
        return NodePaths(
            self.folder / "hook.sock", self.folder / "containers", self.folder / "cgroup", self.folder / "proc"
        )

    def agent(
        self, enforcement: Literal["auto", "native", "kmod", "preload", "watch", "none"] = "auto"
    ) -> StandaloneAgent:
        settings = AgentConfiguration(
            apiVersion="vrampack.dev/v1",
            kind="AgentConfiguration",
            listen=AgentListen(health="", status_socket=""),
            enforcement=enforcement,
        )
        preload = PreloadPaths(self.folder / "preload", self.folder / "libvrampack.so", self.folder / "books")
        return StandaloneAgent(
            settings,
            AgentMetrics("0", node="host"),
            self.driver,
            host="host",
            node_paths=self.node_paths,
            back_ends=make_rows(self.module, preload),
        )

    async def asks(self, name: str, *env: str, hierarchy: str = "unified") -> dict[str, object]:
        """The answer to the hook of a container."""
        cgroup = self.folder / "cgroup" / "docker" / name
        cgroup.mkdir(parents=True)
        (cgroup / "cgroup.events").write_text("populated 1\n")
        question = {"v": 2, "pid": 7, "id": name, "namespace": "", "pod": "", "uid": "", "container": ""}
        question |= {"hierarchy": hierarchy, "cgroup": f"/docker/{name}", "env": [*env]}
        reader, writer = await asyncio.open_unix_connection(self.node_paths.hook_socket)
        writer.write(json.dumps(question).encode() + b"\n")
        answer: dict[str, object] = json.loads(await reader.readline())
        writer.close()
        return answer


@asynccontextmanager
async def running(agent: StandaloneAgent, until: Callable[[], bool] | None = None) -> AsyncIterator[None]:
    """Run it; wait until it is ready, unless told otherwise."""
    condition = until or (lambda: not agent.find_unready_reason())
    task = asyncio.create_task(agent.run())
    try:
        async with asyncio.timeout(10):
            while not condition():
                assert not task.done()
                await asyncio.sleep(0.005)
        yield
    finally:
        agent.stop()
        await task


async def becomes(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a state, which sends no signal
            await asyncio.sleep(0.005)


@pytest.fixture
def host(tmp_path: Path) -> HostAgentHarness:
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup" / "cgroup.controllers").touch()
    (tmp_path / "libvrampack.so").write_bytes(b"a library")
    write_proc(tmp_path)
    module = SimulatedKmod()
    module.is_loaded = False
    return HostAgentHarness(tmp_path, HostDriver(), module)


def series(agent: StandaloneAgent, name: str) -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(agent._metrics.render_page().decode())
    return [(each.labels, each.value) for family in families for each in family.samples if each.name == name]


async def test_container_gets_the_library_and_appears_in_metrics(host: HostAgentHarness) -> None:
    agent = host.agent()
    async with running(agent):
        assert await host.asks("c1", *SIX) == {"ok": True, "mount": str(host.folder / "preload")}
        labels = {"node": "host", "UUID": "GPU-0", "gpu": "0", "namespace": "", "pod": "", "container": "c1"}
        assert series(agent, "vrampack_agent_container_memory_limit_bytes") == [(labels, 6043 * MIB)]
        # 6043 of 15109 MiB are 5.6 of 14 units
        assert [value for _, value in series(agent, "vrampack_agent_card_held_units")] == [6]
        assert series(agent, "vrampack_agent_enforcement_info") == [({"mode": "preload"}, 1)]
        assert series(agent, "vrampack_agent_hook_answers_total") == [({"result": "ok"}, 1), ({"result": "refused"}, 0)]


async def test_nothing_is_mounted_when_the_driver_enforces_limits(host: HostAgentHarness) -> None:
    host.driver = HostDriver("615.71.09")
    agent = host.agent()
    async with running(agent):
        assert await host.asks("c1", *SIX) == {"ok": True}
    assert host.driver.limits == [(str(host.folder / "cgroup/docker/c1"), "GPU-0", 6043)]


async def test_container_is_registered_with_the_module_and_nothing_is_mounted(
    host: HostAgentHarness,
) -> None:
    host.module.is_loaded = True
    agent = host.agent()
    async with running(agent):
        assert await host.asks("c1", *SIX, "ALIYUN_COM_GPU_SCHD_WEIGHT=4") == {"ok": True}
        (key,) = host.module.instances
        assert host.module.limits() == {key: {0: 6043}}
        cgroup = (host.folder / "cgroup/docker/c1").stat().st_ino
        assert (host.module.instances[key].identity, host.module.instances[key].weight) == (f"cgroup={cgroup}", 4)
        host.module.set_usage(key, 0, 3193, refused=1)
        await agent._reconcile()
        assert series(agent, "vrampack_agent_container_memory_used_bytes")[0][1] == 3193 * MIB
        assert series(agent, "vrampack_agent_container_refused_allocations_total")[0][1] == 1
        (shown,) = agent._build_limits_status().containers
        assert (shown.container, shown.limit_bytes, shown.used_bytes) == ("c1", 6043 * MIB, 3193 * MIB)
        host.module.end_budget(key)
        (host.folder / "cgroup/docker/c1/cgroup.events").write_text("populated 0\n")
        assert await host.asks("c2", *SIX) == {"ok": True}
        assert key not in host.module.instances


async def test_host_container_is_identified_by_its_pid_namespace_on_cgroup_v1(host: HostAgentHarness) -> None:
    host.module.is_loaded = True
    (host.folder / "cgroup" / "cgroup.controllers").unlink()
    procs = host.folder / "cgroup" / "memory" / "docker" / "c1" / "cgroup.procs"
    procs.parent.mkdir(parents=True)
    procs.write_text("7\n")
    write_process(host.folder / "proc", 7, (7, 1))
    async with running(host.agent()):
        assert await host.asks("c1", *SIX, hierarchy="memory") == {"ok": True}
    assert [each.identity for each in host.module.instances.values()] == ["pidns=7"]


async def test_next_agent_registers_running_containers_with_a_reloaded_module(host: HostAgentHarness) -> None:
    host.module.is_loaded = True
    async with running(host.agent()):
        await host.asks("c1", *SIX)
    host.module.load()
    async with running(host.agent()):
        assert [*host.module.limits().values()] == [{0: 6043}]


async def test_container_with_a_limit_is_refused_while_the_module_is_detached(host: HostAgentHarness) -> None:
    host.module.is_loaded = True
    agent = host.agent()
    async with running(agent):
        host.module.is_attached = False
        await agent._reconcile()
        assert "vrampack limits attach" in agent.find_unready_reason()
        answer = await host.asks("c1", *SIX)
        assert (answer["ok"], "vrampack limits attach" in str(answer["error"])) == (False, True)


async def test_container_is_refused_with_a_reason_until_the_cards_are_known(host: HostAgentHarness) -> None:
    host.driver.error = DriverError("the driver is asleep")
    agent = host.agent()
    async with running(agent, lambda: host.node_paths.hook_socket.exists() and bool(agent._discovery.problem)):
        text = "the cards of this host are not known yet: the driver is asleep"
        assert agent.find_unready_reason() == text
        assert await host.asks("c1", *SIX) == {"ok": False, "error": text}
        assert [value for _, value in series(agent, "vrampack_agent_offered")] == [0]


async def test_container_created_during_agent_startup_waits_for_the_agent(host: HostAgentHarness) -> None:
    looks = asyncio.Event()
    host.driver.may_answer = looks
    agent = host.agent()
    async with running(agent, host.node_paths.hook_socket.exists):
        asked = asyncio.create_task(host.asks("c1", *SIX))
        assert await asyncio.wait([asked], timeout=0.1) == (set(), {asked})
        looks.set()
        assert (await asked)["ok"] is True


async def test_waiting_for_the_agent_has_a_timeout(host: HostAgentHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrampack.agent.host.agent.RESTORE_WAIT_SECONDS", 0.01)
    host.driver.may_answer = asyncio.Event()
    async with running(host.agent(), host.node_paths.hook_socket.exists):
        assert await host.asks("c1", *SIX) == {"ok": False, "error": "the cards of this host are not known yet"}


async def test_the_next_agent_keeps_limits_of_running_containers(host: HostAgentHarness) -> None:
    """They are set in the driver again as well: it may have been reloaded."""
    host.driver = HostDriver("615.71.09")
    for expected in (1, 2):
        agent = host.agent()
        async with running(agent):
            if expected == 1:
                await host.asks("c1", *SIX)
            assert [each.limits for each in agent._host_containers.list_containers()] == [{"GPU-0": 6043}]
        assert host.driver.limits == [(str(host.folder / "cgroup/docker/c1"), "GPU-0", 6043)] * expected
    assert not host.node_paths.hook_socket.exists()


IMPOSSIBLE: dict[str, tuple[Literal["native", "kmod", "watch", "none", "preload"], str, str]] = {
    "watch holds no container": (
        "watch",
        "580.95.05",
        "without Kubernetes enforcement is auto, native, kmod or preload",
    ),
    "none holds no container": ("none", "580.95.05", "without Kubernetes enforcement is auto, native, kmod or preload"),
    "an old driver": ("native", "580.95.05", "back end native cannot work here: driver 580.95.05, 615 or newer"),
    "no module": ("kmod", "580.95.05", "back end kmod cannot work here: /proc/cgpu_km is not there"),
    "a driver that the library does not know": ("preload", "470.1", "driver 470.1, the library knows"),
}


@pytest.mark.parametrize(("enforcement", "version", "why"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
async def test_agent_exits_when_the_back_end_cannot_enforce_limits(
    host: HostAgentHarness, enforcement: Literal["native", "kmod", "watch", "none", "preload"], version: str, why: str
) -> None:
    host.driver = HostDriver(version)
    with pytest.raises(ImpossibleBackEndError, match=why):
        await host.agent(enforcement).run()


async def test_without_room_for_its_files_the_agent_is_not_ready_and_retries(
    host: HostAgentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the hook's socket and then the library's folder cannot be made; an obstacle stands for a full file system."""
    for name in ("START_RETRY_SECONDS", "RESTORE_WAIT_SECONDS"):
        monkeypatch.setattr(f"vrampack.agent.host.agent.{name}", 0.01)
    obstacles = (host.node_paths.hook_socket / "obstacle", host.folder / "preload" / "libvrampack.so.new" / "obstacle")
    for obstacle in obstacles:
        obstacle.mkdir(parents=True)
    agent = host.agent()
    async with running(agent, lambda: "hook.sock" in agent.find_unready_reason()):
        obstacles[0].rmdir()
        host.node_paths.hook_socket.rmdir()
        await becomes(lambda: "libvrampack.so.new" in agent.find_unready_reason())
        assert agent.find_unready_reason().startswith("limits cannot be put in force: ")
        assert (await host.asks("c1", *SIX))["ok"] is False
        obstacles[1].rmdir()
        obstacles[1].parent.rmdir()
        await becomes(lambda: not agent.find_unready_reason())
        assert (await host.asks("c2", *SIX))["ok"] is True


async def test_a_failed_measurement_does_not_stop_later_ones(
    host: HostAgentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the error."""
    monkeypatch.setattr("vrampack.agent.host.agent.MEASURE_SECONDS", 0.01)
    failures: list[Exception] = [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a cgroup's name"), DriverError("hung")]

    async def usage() -> tuple[GpuUsage, ...]:
        if failures:
            raise failures.pop()
        return (GpuUsage("GPU-0", 9 * MIB, 15109 * MIB),)

    monkeypatch.setattr(host.driver, "read_usage", usage)
    agent = host.agent()
    async with running(agent, lambda: bool(series(agent, "vrampack_agent_card_memory_used_bytes"))):
        pass
