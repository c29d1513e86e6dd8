"""The hook, the agent's socket and the `native` back end under a real runc.

Only the driver is simulated. What is shown: the limit is set on the container's very cgroup, with its process in it and
before its program runs, and a container whose limit is refused does not run at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.shim.bundles import OciBundle, modes
from tests.support.cgroup_folders import MOUNT
from vrampack.agent.limits.cgroups import CgroupTree, find_process_owner
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.hook_server import HookServer
from vrampack.agent.limits.native.backend import NativeByHook
from vrampack.agent.limits.pod_limits import PodLimits
from vrampack.agent.limits.usage_meter import UsageMeter
from vrampack.agent.nvml.driver import GpuUsage

LIMITED = ["NVIDIA_GPU_MEMORY_LIMIT=999999", "ALIYUN_COM_GPU_MEM_CONTAINER=4"]
"""The container claims far more for itself than the agent knows it may use."""


def processes_in(cgroup_path: str) -> int:
    return len(Path(cgroup_path, "cgroup.procs").read_text().split())


@dataclass
class LookingDriver:
    """Keeps what it was asked for, and what the container looked like at that moment."""

    has_run: Callable[[], bool]
    refuses: bool = False
    limits: list[tuple[str, str, int]] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    had_run: list[bool] = field(default_factory=list)

    async def set_limit(self, cgroup_path: str, uuid: str, mib: int, /) -> None:
        if self.refuses:
            raise LimitError(f"card {uuid} takes no limit")
        self.limits.append((cgroup_path, uuid, mib))
        self.processes.append(processes_in(cgroup_path))
        self.had_run.append(self.has_run())

    async def read_usage(self) -> tuple[GpuUsage, ...]:
        return ()


@asynccontextmanager
async def an_agent(path: Path, driver: LookingDriver, limits: Mapping[str, int] | None) -> AsyncIterator[HookServer]:
    back_end = NativeByHook(driver, UsageMeter(driver, find_process_owner))
    pods = PodLimits(CgroupTree(MOUNT), back_end, lambda _uid, name: limits if name == "main" else None)
    server = HookServer(path, pods.apply_limit)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture(params=modes())
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bundle(built: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OciBundle]:
    """Its hook waits ten seconds for the agent, or as long as the test sets."""
    (tmp_path / "bundle").mkdir()
    arguments = [f"--socket={tmp_path / 'hook.sock'}", f"--timeout={getattr(request, 'param', 10)}"]
    made = OciBundle(tmp_path / "bundle", built / "vrampack-hook", arguments, LIMITED)
    yield made
    made.remove()


async def test_the_limit_is_on_the_cgroup_before_the_first_process_runs(
    bundle: OciBundle, tmp_path: Path, mode: str
) -> None:
    driver = LookingDriver(lambda: bundle.has_run)
    async with an_agent(tmp_path / "hook.sock", driver, {"GPU-b": 12, "GPU-a": 4301}) as server:
        ended = await bundle.run(mode)
    assert (ended.status, ended.complaint) == (0, "")
    assert bundle.has_run
    assert [(Path(path).parts[-5:], uuid, mib) for path, uuid, mib in driver.limits] == [
        (Path(bundle.cgroup).parts[1:], "GPU-a", 4301),
        (Path(bundle.cgroup).parts[1:], "GPU-b", 12),
    ]
    assert driver.processes == [1, 1], "runc's init, which becomes the container's first process, and no other"
    assert driver.had_run == [False, False]
    assert (server.allowed_count, server.refused_count) == (1, 0)


async def test_a_container_that_the_driver_refuses_does_not_run(bundle: OciBundle, tmp_path: Path, mode: str) -> None:
    driver = LookingDriver(lambda: bundle.has_run, refuses=True)
    async with an_agent(tmp_path / "hook.sock", driver, {"GPU-a": 4301}) as server:
        ended = await bundle.run(mode)
    assert ended.status != 0
    assert "refused: card GPU-a takes no limit" in ended.complaint
    assert not bundle.has_run
    assert (server.allowed_count, server.refused_count) == (0, 1)


async def test_a_container_without_a_record_does_not_run(bundle: OciBundle, tmp_path: Path, mode: str) -> None:
    driver = LookingDriver(lambda: bundle.has_run)
    async with an_agent(tmp_path / "hook.sock", driver, None):
        ended = await bundle.run(mode)
    assert "refused: ml/app-0/main: no record gives this container a limit" in ended.complaint
    assert not bundle.has_run
    assert driver.limits == []


@pytest.mark.parametrize("bundle", [1], indirect=True)
async def test_a_container_does_not_run_without_an_agent(bundle: OciBundle, mode: str) -> None:
    ended = await bundle.run(mode)
    assert ended.status != 0
    assert "no agent at" in ended.complaint
    assert not bundle.has_run
