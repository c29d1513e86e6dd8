"""NVML through the real `nvidia-ml-py`, on a library that is really loaded: only the GPU behind it is simulated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from tests.agent.nvml.driver_harness import A_CALL_SECONDS, MIB, SHORT_SECONDS, Simulate, a_library
from tests.fakes.nvml.build import LIBRARY, build_stub
from tests.fakes.nvml.machine import DRIVER_NOT_LOADED, UNKNOWN, FakeNvmlMachine
from tests.fakes.nvml.profiles import PROFILES
from tests.support.nvml_stub import BUILT, stub_folder
from tests.support.polling import wait_until
from vrampack.agent.nvml.driver import Xid
from vrampack.agent.nvml.errors import DriverError, DriverHungError, HiddenDriverError, NoDriverError


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


def test_a_process_ends_though_its_driver_hangs(tmp_path: Path) -> None:
    made = FakeNvmlMachine(tmp_path / "state", gpus=PROFILES["t4"])
    made.hang("nvmlInit")
    said = in_a_process(library=stub_folder(), state=made.state, seconds=SHORT_SECONDS)
    assert said == "DriverHungError the list of cards: no answer from the driver in 0.2 s"
