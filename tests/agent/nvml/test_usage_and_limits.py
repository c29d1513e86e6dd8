"""What processes hold of a card, how much of it they compute, and the limits of cgroups."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.nvml.driver_harness import MIB, SHORT_SECONDS, Simulate, a_library
from tests.fakes.nvml.machine import OLD_DRIVER, allocate_in_process
from tests.fakes.nvml.profiles import A100_PARTS, partition_gpu, stub_gpus
from tests.support.nvml_stub import stub_folder
from vrampack.agent.nvml.driver import CgroupLimit, GpuProcess, GpuUsage, GpuUtilization
from vrampack.agent.nvml.errors import DriverError, DriverHungError


async def test_usage_is_counted_per_process(tmp_path: Path, simulate: Simulate) -> None:
    machine = simulate("a10-l4")
    a10, l4 = (gpu.uuid for gpu in machine.gpus)
    machine.add_process(a10, 4711, 100)
    machine.add_process(a10, 4712, 50)
    library = a_library(tmp_path)
    await library.list_gpus()
    assert await library.read_usage() == (
        GpuUsage(a10, 150 * MIB, 23028 * MIB, (GpuProcess(4711, 100 * MIB), GpuProcess(4712, 50 * MIB))),
        GpuUsage(l4, 0, 23034 * MIB),
    )
    machine.lose(a10)
    assert await library.read_usage() == (GpuUsage(l4, 0, 23034 * MIB),)


async def test_compute_usage_of_a_card_is_reported_by_process_since_the_last_call(
    tmp_path: Path, simulate: Simulate
) -> None:
    """Of two samples of a process the newer one counts; garbage, which real drivers return, and old samples are ignored."""
    machine = simulate("a10-l4")
    a10, l4 = (gpu.uuid for gpu in machine.gpus)
    for pid, timestamp, percent in ((4711, 10, 90), (4711, 20, 30), (4712, 15, 5), (0, 25, 7), (4713, 30, 2147483632)):
        machine.add_sample(a10, pid, timestamp=timestamp, sm_percent=percent)
    library = a_library(tmp_path)
    await library.list_gpus()
    assert await library.read_utilization() == (GpuUtilization(a10, {4711: 30, 4712: 5}), GpuUtilization(l4, {}))
    assert await library.read_utilization() == (GpuUtilization(a10, {}), GpuUtilization(l4, {}))
    machine.add_sample(a10, 4712, timestamp=21, sm_percent=100)
    machine.lose(l4)
    assert await library.read_utilization() == (GpuUtilization(a10, {4712: 100}),)


async def test_a_sample_from_the_future_hides_no_later_one(tmp_path: Path, simulate: Simulate) -> None:
    """Neither one with a garbage time, nor one from before the node's clock was set back."""
    machine = simulate("v100")
    (v100,) = (gpu.uuid for gpu in machine.gpus)
    library, now = a_library(tmp_path), int(time.time()) * 1_000_000
    await library.list_gpus()
    for pid, timestamp in ((4711, 2**62), (4712, now + 30_000_000)):
        machine.add_sample(v100, pid, timestamp=timestamp, sm_percent=1)
    assert await library.read_utilization() == (GpuUtilization(v100, {4712: 1}),)
    machine.add_sample(v100, 4713, timestamp=now + 20_000_000, sm_percent=2)
    (found,) = await library.read_utilization()
    assert found.sm_percent.get(4713) == 2


async def test_a_card_in_mig_mode_has_no_compute_usage_by_process(tmp_path: Path, simulate: Simulate) -> None:
    simulate("a100-mig")
    library = a_library(tmp_path)
    assert len((await library.list_gpus()).gpus) == len(A100_PARTS)
    assert await library.read_utilization() == ()


async def test_a_hung_compute_query_does_not_block_memory_queries(tmp_path: Path, simulate: Simulate) -> None:
    machine = simulate("v100")
    library = a_library(tmp_path, seconds=SHORT_SECONDS)
    await library.list_gpus()
    machine.hang("nvmlDeviceGetProcessUtilization")
    with pytest.raises(DriverHungError):
        await library.read_utilization()
    assert len(await library.read_usage()) == 1


def a_cgroup(folder: Path) -> Path:
    """A folder that looks like one from outside."""
    folder.mkdir()
    (folder / "cgroup.procs").touch()
    return folder


async def test_a_limit_holds_until_its_cgroup_is_gone(tmp_path: Path, simulate: Simulate) -> None:
    """4301 MiB: 4000 fit, 302 more do not, 301 do; a cgroup recreated at that path has no limit."""
    uuid = simulate("v100").gpus[0].uuid
    library = a_library(tmp_path)
    cgroup = a_cgroup(tmp_path / "leaf")
    await library.set_limit(str(cgroup), uuid, 4301)
    assert [allocate_in_process(stub_folder(), cgroup, uuid, mib) for mib in (4000, 302, 301, 1)] == [0, 20, 0, 20]
    assert await library.read_limit(str(cgroup), uuid) == CgroupLimit(4301 * MIB, 4301 * MIB)
    with pytest.raises(DriverError, match="Invalid Argument"):
        await library.set_limit(str(cgroup), uuid, 4300)
    (cgroup / "cgroup.procs").unlink()
    cgroup.rename(tmp_path / "dead")
    a_cgroup(cgroup)
    assert await library.read_limit(str(cgroup), uuid) == CgroupLimit(None, 0)
    assert allocate_in_process(stub_folder(), cgroup, uuid, 9999) == 0


async def test_a_limit_is_lifted(tmp_path: Path, simulate: Simulate) -> None:
    uuid = simulate("v100").gpus[0].uuid
    library = a_library(tmp_path)
    cgroup = a_cgroup(tmp_path / "leaf")
    await library.set_limit(str(cgroup), uuid, 1)
    await library.set_limit(str(cgroup), uuid, None)
    assert await library.read_limit(str(cgroup), uuid) == CgroupLimit(None, 0)


async def test_invalid_limits_are_refused(tmp_path: Path, simulate: Simulate) -> None:
    """A folder that is no cgroup, an instance, and a driver that does not know limits."""
    machine = simulate("v100")
    whole, part = machine.gpus[0], partition_gpu(stub_gpus("NVIDIA A100-SXM4-40GB", 40960)[0], *A100_PARTS)
    machine.set_gpus((whole, replace(part, minor=1)))
    library = a_library(tmp_path)
    cgroup = str(a_cgroup(tmp_path / "leaf"))
    with pytest.raises(DriverError, match="Invalid Argument"):
        await library.set_limit(str(tmp_path), whole.uuid, 1)
    with pytest.raises(DriverError, match="Not Supported"):
        await library.set_limit(cgroup, part.instances[0].uuid, 1)
    machine.set_driver(OLD_DRIVER)
    with pytest.raises(DriverError, match="Function Not Found"):
        await library.set_limit(cgroup, whole.uuid, 1)
