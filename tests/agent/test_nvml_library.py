"""NVML through the real `nvidia-ml-py`, on a library that is really loaded: only the GPU behind it is simulated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pynvml
import pytest

from tests.fakes.nvml.build import LIBRARY, build_stub
from tests.fakes.nvml.machine import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    OLD_DRIVER,
    UNKNOWN,
    FakeNvmlMachine,
    allocate_in_process,
    without_gpu,
)
from tests.fakes.nvml.profiles import A100_PARTS, PROFILES, partition_gpu, stub_gpus
from tests.support.nvml_stub import BUILT, load_stub_machine, stub_folder
from tests.support.polling import wait_until
from vrampack.agent.nvml.driver import CgroupLimit, GpuProcess, GpuUsage, GpuUtilization, Xid
from vrampack.agent.nvml.errors import DriverError, DriverHungError, HiddenDriverError, NoDriverError
from vrampack.agent.nvml.nvml_driver import NvmlDriver

MIB = 1024 * 1024
A_CALL_SECONDS = 10.0
SHORT_SECONDS = 0.2
"""Where a call is meant to hang."""

Simulate: TypeAlias = Callable[[str], FakeNvmlMachine]


@pytest.fixture
def simulate(tmp_path: Path) -> Iterator[Simulate]:
    """Simulates the machine of that profile."""
    with load_stub_machine(tmp_path, ()) as made:

        def simulate_profile(profile: str) -> FakeNvmlMachine:
            made.set_gpus(PROFILES[profile])
            return made

        yield simulate_profile


def a_library(tmp_path: Path, *, seconds: float = A_CALL_SECONDS) -> NvmlDriver:
    return NvmlDriver(call_timeout_seconds=seconds, pci_devices=tmp_path, kernel_module=tmp_path / "nvidia")


def a_cgroup(folder: Path) -> Path:
    """A folder that looks like one from outside."""
    folder.mkdir()
    (folder / "cgroup.procs").touch()
    return folder


@pytest.mark.parametrize(
    ("profile", "memory_mib"),
    {
        "t4": [15109],
        "t4-15360": [15360],
        "v100": [16130],
        "v100x8": [16130] * 8,
        "a10-l4": [23028, 23034],
        "h200x8": [143771] * 8,
        "none": [],
    }.items(),
)
async def test_every_gpu_is_a_card(tmp_path: Path, simulate: Simulate, profile: str, memory_mib: list[int]) -> None:
    machine = simulate(profile)
    inventory = await a_library(tmp_path).list_gpus()
    assert [card.memory_mib for card in inventory.gpus] == memory_mib
    assert [card.uuid for card in inventory.gpus] == [gpu.uuid for gpu in machine.gpus]
    assert [card.index for card in inventory.gpus] == list(range(len(memory_mib)))
    assert inventory.driver_version == "615.71.09"
    assert not inventory.mig_gpus


async def test_a_card_has_its_bus_id_minor_and_numa_node(tmp_path: Path, simulate: Simulate) -> None:
    """NUMA is the PCI device's CPU node according to the kernel, where -1 means none."""
    simulate("a10-l4")
    for place, node in (("0000:01:00.0", "1\n"), ("0000:02:00.0", "-1\n")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "numa_node").write_text(node)
    a10, l4 = (await a_library(tmp_path).list_gpus()).gpus
    assert (a10.model, a10.minor, a10.pci_bus_id, a10.numa) == ("NVIDIA A10", 0, "00000000:01:00.0", 1)
    assert (l4.model, l4.minor, l4.pci_bus_id, l4.numa) == ("NVIDIA L4", 1, "00000000:02:00.0", None)


async def test_mig_instances_are_cards_and_their_parent_is_not(tmp_path: Path, simulate: Simulate) -> None:
    """DP-11. An instance's index is (0 + 1) * 100 + its place on the GPU."""
    gpu = simulate("a100-mig").gpus[0]
    inventory = await a_library(tmp_path).list_gpus()
    assert [card.uuid for card in inventory.gpus] == [part.uuid for part in gpu.instances]
    assert [card.index for card in inventory.gpus] == [100, 101, 102, 103]
    assert [card.memory_mib for card in inventory.gpus] == [19968, 9856, 4864, 4864]
    assert {card.mig_parent for card in inventory.gpus} == {gpu.uuid}
    assert inventory.gpus[0].model == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    assert (inventory.gpus[1].gpu_instance, inventory.gpus[1].compute_instance) == (2, 0)
    assert inventory.mig_gpus == {gpu.uuid}


async def test_a_gpu_may_be_repartitioned_while_it_is_listed(tmp_path: Path, simulate: Simulate) -> None:
    """No restart: uncut, cut into nothing, into parts, into other parts."""
    machine = simulate("none")
    (whole,) = stub_gpus("NVIDIA A100-SXM4-40GB", 40960)
    library = a_library(tmp_path)
    seen = []
    for gpu in (
        whole,
        partition_gpu(whole),
        partition_gpu(whole, *A100_PARTS),
        partition_gpu(whole, ("7g.40gb", 40192)),
    ):
        machine.set_gpus((gpu,))
        inventory = await library.list_gpus()
        seen.append([(card.index, card.memory_mib) for card in inventory.gpus])
        assert inventory.mig_gpus == ({whole.uuid} if gpu.is_cut else set())
    assert seen == [[(0, 40960)], [], [(100, 19968), (101, 9856), (102, 4864), (103, 4864)], [(100, 40192)]]


async def test_a_lost_card_does_not_hide_the_others(tmp_path: Path, simulate: Simulate) -> None:
    machine = simulate("v100x8")
    lost = machine.gpus[3].uuid
    library = a_library(tmp_path)
    await library.list_gpus()
    machine.lose(lost)
    inventory = await library.list_gpus()
    assert [card.index for card in inventory.gpus] == [0, 1, 2, 4, 5, 6, 7]
    assert [(card.index, card.uuid, str(card.error)) for card in inventory.unreadable] == [(3, lost, "GPU is lost")]
    await library.check_gpu(machine.gpus[4].uuid)
    with pytest.raises(DriverError, match="GPU is lost") as refusal:
        await library.check_gpu(lost)
    assert refusal.value.code == GPU_IS_LOST
    machine.heal()
    assert len((await library.list_gpus()).gpus) == 8


async def test_a_card_vanishes_and_comes_back(tmp_path: Path, simulate: Simulate) -> None:
    machine = simulate("v100x8")
    everything, gone = machine.gpus, machine.gpus[0].uuid
    library = a_library(tmp_path)
    machine.set_gpus(without_gpu(everything, gone))
    assert [card.uuid for card in (await library.list_gpus()).gpus] == [gpu.uuid for gpu in everything[1:]]
    machine.set_gpus(everything)
    assert [card.index for card in (await library.list_gpus()).gpus] == list(range(8))


async def test_a_card_that_comes_back_at_another_place_has_its_new_numbers(tmp_path: Path, simulate: Simulate) -> None:
    """A GPU that was attached again, and an instance that was made again at its old place: each keeps its uuid."""
    machine = simulate("a100-mig")
    (gpu,) = machine.gpus
    library = a_library(tmp_path)
    await library.list_gpus()
    moved = tuple(replace(part, compute_instance=3) for part in gpu.instances)
    machine.set_gpus((replace(gpu, minor=7, pci_bus_id="00000000:0A:00.0", instances=moved),))
    seen = {(card.uuid, card.minor, card.compute_instance) for card in (await library.list_gpus()).gpus}
    assert seen == {(part.uuid, 7, 3) for part in gpu.instances}
    machine.set_gpus((replace(gpu, minor=5, pci_bus_id="00000000:0B:00.0", is_cut=False, instances=()),))
    (whole,) = (await library.list_gpus()).gpus
    assert (whole.uuid, whole.minor, whole.pci_bus_id) == (gpu.uuid, 5, "00000000:0B:00.0")


async def test_hung_driver_call_does_not_block_other_calls(tmp_path: Path, simulate: Simulate) -> None:
    """The loop is not blocked, the next such call is refused at once, and it costs one thread only."""
    machine = simulate("v100x8")
    library = a_library(tmp_path, seconds=SHORT_SECONDS)
    await library.list_gpus()
    hung, fine = machine.gpus[0].uuid, machine.gpus[1].uuid
    machine.hang("nvmlDeviceGetMemoryInfo", hung)
    with pytest.raises(DriverHungError, match=r"no answer from the driver in 0\.2 s"):
        await library.check_gpu(hung)
    for _ in range(3):
        with pytest.raises(DriverHungError, match="has not answered an earlier call yet"):
            async with asyncio.timeout(SHORT_SECONDS / 2):
                await library.check_gpu(hung)
    await library.check_gpu(fine)
    assert library.hung_call_count == 1
    machine.heal()
    await asyncio.to_thread(wait_until, lambda: not library.hung_call_count)
    await library.check_gpu(hung)


async def test_driver_error_keeps_its_nvml_code(tmp_path: Path, simulate: Simulate) -> None:
    machine = simulate("v100")
    machine.fail("nvmlDeviceGetCount_v2", UNKNOWN)
    with pytest.raises(DriverError, match="the list of cards: Unknown Error") as refusal:
        await a_library(tmp_path).list_gpus()
    assert refusal.value.code == UNKNOWN


async def test_driver_may_be_loaded_later(tmp_path: Path, simulate: Simulate) -> None:
    machine = simulate("v100")
    machine.fail("nvmlInit", DRIVER_NOT_LOADED)
    library = a_library(tmp_path)
    with pytest.raises(NoDriverError, match="Driver Not Loaded"):
        await library.list_gpus()
    machine.heal()
    assert len((await library.list_gpus()).gpus) == 1


async def test_a_loaded_driver_whose_library_is_missing_is_reported_as_hidden(
    tmp_path: Path, simulate: Simulate
) -> None:
    """The container was not made by NVIDIA's runtime: no library, and no devices."""
    simulate("v100").fail("nvmlInit", DRIVER_NOT_LOADED)
    (tmp_path / "nvidia").mkdir()
    with pytest.raises(HiddenDriverError, match="the list of cards: Driver Not Loaded"):
        await a_library(tmp_path).list_gpus()


async def test_a_driver_that_was_closed_is_opened_again(tmp_path: Path, simulate: Simulate) -> None:
    """One call fails and the next one works, without a restart of the agent."""
    simulate("v100")
    library = a_library(tmp_path)
    await library.list_gpus()
    with contextlib.suppress(pynvml.NVMLError):
        while True:
            pynvml.nvmlShutdown()
    with pytest.raises(DriverError, match="Uninitialized"):
        await library.list_gpus()
    assert len((await library.list_gpus()).gpus) == 1


async def test_events_are_reported_once(tmp_path: Path, simulate: Simulate) -> None:
    gpu = (machine := simulate("a100-mig")).gpus[0]
    library = a_library(tmp_path)
    await library.list_gpus()
    machine.xid(gpu.uuid, 79)
    machine.xid(gpu.uuid, 94, gpu_instance=2, compute_instance=0)
    machine.xid(None, 62)
    assert await library.wait_for_xids(0.0) == (
        Xid(79, gpu.uuid),
        Xid(94, gpu.uuid, gpu_instance=2, compute_instance=0),
        Xid(62, None),
    )
    assert await library.wait_for_xids(0.0) == ()


async def test_an_event_ends_the_wait(tmp_path: Path, simulate: Simulate) -> None:
    machine = simulate("v100")
    library = a_library(tmp_path)
    await library.list_gpus()
    waiting = asyncio.create_task(library.wait_for_xids(A_CALL_SECONDS))
    machine.xid(machine.gpus[0].uuid, 48)
    async with asyncio.timeout(A_CALL_SECONDS):
        assert await waiting == (Xid(48, machine.gpus[0].uuid),)


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


PRINT_CARDS = """
import asyncio
from pathlib import Path
from vrampack.agent.nvml.errors import DriverError
from vrampack.agent.nvml.nvml_driver import NvmlDriver
library = NvmlDriver(call_timeout_seconds={seconds}, kernel_module=Path("/no/module"))
async def ask():
    try:
        print(len((await library.list_gpus()).gpus), [usage.total_bytes for usage in await library.read_usage()])
    except DriverError as error:
        print(type(error).__name__, error)
asyncio.run(ask())
"""


def in_a_process(*, library: Path, state: Path | None = None, seconds: float = A_CALL_SECONDS) -> str:
    """What a fresh process without a loaded stub prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path.cwd()),
        "LD_LIBRARY_PATH": str(library.resolve()),
    }
    environment["VRAMPACK_NVML_STATE"] = str(state)
    script = PRINT_CARDS.format(seconds=seconds)
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def test_a_missing_nvml_library_is_reported(tmp_path: Path) -> None:
    """An empty file hides a real library that the tests' machine may have."""
    (tmp_path / LIBRARY).touch()
    assert in_a_process(library=tmp_path) == "NoDriverError the list of cards: NVML Shared Library Not Found"


def test_older_library_without_newer_functions_still_works(tmp_path: Path) -> None:
    """Without memory info v2 the first version is called; without the process list no process is counted."""
    newer = (
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetMigMode",
        "nvmlSystemGetConfComputeState",
    )
    library = build_stub(BUILT, without=newer)
    made = FakeNvmlMachine(tmp_path / "state", gpus=PROFILES["t4"])
    assert in_a_process(library=library, state=made.state) == f"1 [{15109 * MIB}]"


async def test_confidential_computing_is_noticed(tmp_path: Path, simulate: Simulate) -> None:
    machine, library = simulate("h200x8"), a_library(tmp_path)
    assert not (await library.list_gpus()).has_confidential_computing
    machine.turn_on_confidential_computing()
    assert (await library.list_gpus()).has_confidential_computing


async def test_cards_are_listed_when_confidential_computing_cannot_be_queried(
    tmp_path: Path, simulate: Simulate
) -> None:
    machine = simulate("t4")
    machine.turn_on_confidential_computing()
    machine.fail("nvmlSystemGetConfComputeState", NOT_SUPPORTED)
    inventory = await a_library(tmp_path).list_gpus()
    assert (len(inventory.gpus), inventory.has_confidential_computing) == (1, False)


def test_a_process_ends_though_its_driver_hangs(tmp_path: Path) -> None:
    made = FakeNvmlMachine(tmp_path / "state", gpus=PROFILES["t4"])
    made.hang("nvmlInit")
    said = in_a_process(library=stub_folder(), state=made.state, seconds=SHORT_SECONDS)
    assert said == "DriverHungError the list of cards: no answer from the driver in 0.2 s"
