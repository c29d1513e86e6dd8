"""The module beside NVIDIA's driver: what it relies on exists, nothing changes for programs, and both can be loaded and unloaded."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.driver.real_driver import SMI, RealDriver, read_differences
from tests.machine.program import GuestStart
from tests.shim.kmod.world import fails_with
from tests.support.program_result import ProgramResult

LIMIT = {0: 4301}
LIBRARIES = "/bin/libraries"
PROBED = {
    "rm_ioctl": "nvidia",
    "os_memcpy_from_user": "nvidia",
    "nv_get_file_private": "nvidia",
    "nv_dma_buf_export": "nvidia",
    "nvUvmInterfaceDupMemory": "nvidia",
    "nvUvmInterfaceFreeDupedHandle": "nvidia",
    "uvm_va_range_create_mmap": "nvidia_uvm",
}
LAYOUTS = {"535": "one device", "550": "two devices"}
CYCLES = int(os.environ.get("VRAMPACK_DRIVER_CYCLES", "10"))
"""On each driver and kernel. The long form has 100."""
STRESS_SECONDS = 600
WINDOW = "RM_ALLOC_MEMORY window (0x40)                  "
CONTROL_FILE = (
    ("control FIFO_DISABLE_CHANNELS, another client  ", "ok, status 0x56", "0x1b"),
    (WINDOW, "Invalid argument, status 0x0", "0x56"),
)
UNOPENED_CARD = ((WINDOW, "Input/output error, status 0x0", "0x56"),)
REFUSALS = {"535": CONTROL_FILE, "550": CONTROL_FILE + UNOPENED_CARD}
"""What a limited program may not do: a call, the driver's own answer here, and the module's. 550 opens a card's file without waiting."""
MANAGED = [
    "-mmap of 2 MiB                                  ok, status 0x0",
    "-  wrote a page of managed memory",
    "+mmap of 2 MiB                                  Address already in use, status 0x0",
]


def expected_differences(branch: str) -> list[str]:
    """A limited program names no other container's clients, and gets no window on the card and no managed memory."""
    refusals = ((f"-{call}{answer}", f"+{call}ok, status {status}") for call, answer, status in REFUSALS[branch])
    return [*(line for each in refusals for line in each), *MANAGED]


@pytest.fixture(scope="session")
def bare_answers(machine_with_driver: RealDriver) -> str:
    """Without our module."""
    machine_with_driver.unload_shim()
    return machine_with_driver.run_calls(GuestStart())


@pytest.fixture(scope="session")
def bare_traces(machine_with_driver: RealDriver) -> Mapping[str, ProgramResult]:
    machine_with_driver.unload_shim()
    return {each: machine_with_driver.trace_calls(each, GuestStart()) for each in (SMI, LIBRARIES)}


def start_in(driver: RealDriver, place: str) -> GuestStart:
    """With our module, in a container that has a limit or none."""
    driver.load_shim()
    if place == "unlimited":
        return driver.world.unlimited("free").start
    start = driver.world.limited("a", LIMIT).start
    return replace(start, uid=1000) if place == "limited user" else start


def test_the_functions_that_the_module_probes_are_there(driver: RealDriver) -> None:
    listed = driver.machine.run("calls", "symbols", *PROBED, timeout=100).lines
    assert dict(line.split() for line in listed) == PROBED


def test_the_module_recognises_the_driver_and_guards_all_of_it(driver: RealDriver) -> None:
    driver.load_shim()
    driver.world.limited("a", LIMIT)
    state = driver.world.state()
    assert driver.machine.read("/sys/module/nvidia/version").strip() == driver.which.version
    assert {name: state[name] for name in ("attached", "driver", "layout", "uvm", "copies")} == {
        "attached": "yes",
        "driver": driver.which.version,
        "layout": LAYOUTS[driver.which.branch],
        "uvm": "guarded",
        "copies": "checked",
    }


@pytest.mark.parametrize("place", ["unlimited", "limited", "limited user"])
def test_a_program_gets_the_driver_s_answers_except_for_its_limit(
    driver: RealDriver, bare_answers: str, place: str
) -> None:
    differences = read_differences(bare_answers, driver.run_calls(start_in(driver, place)))
    assert differences == ([] if place == "unlimited" else expected_differences(driver.which.branch))


@pytest.mark.parametrize("place", ["unlimited", "limited"])
@pytest.mark.parametrize("program", [SMI, LIBRARIES])
def test_nvidia_s_own_programs_make_the_same_calls(
    driver: RealDriver, bare_traces: Mapping[str, ProgramResult], program: str, place: str
) -> None:
    before = bare_traces[program]
    after = driver.trace_calls(program, start_in(driver, place))
    assert "ioctl(" in before.err
    assert read_differences(before.out, after.out) == []
    assert read_differences(before.err, after.err) == []


def test_the_driver_unloads_only_when_it_is_neither_attached_nor_open(driver: RealDriver) -> None:
    driver.load_shim()
    driver.machine.rmmod("nvidia_uvm")
    with fails_with(errno.EAGAIN):
        driver.machine.rmmod("nvidia")
    with driver.world.limited("a", LIMIT).running("calls", "hold") as holder:
        holder.wait_for_line("open")
        with fails_with(errno.EAGAIN):
            driver.machine.rmmod("vrampack")
        driver.world.command("detach")
        with fails_with(errno.EAGAIN):
            driver.machine.rmmod("nvidia")
        holder.resume()
        holder.wait_for_end()
    driver.world.forget()
    driver.machine.rmmod("nvidia")
    assert driver.world.state()["attached"] == "no"
    driver.load_driver()
    driver.world.command("attach")
    driver.world.limited("a", LIMIT)
    assert driver.world.state()["copies"] == "checked"


def test_the_module_loads_and_unloads_unnoticed_by_running_programs(driver: RealDriver) -> None:
    """Load, limit, unlimit, detach and unload, again and again."""
    free = driver.world.unlimited("free")
    words = ("calls", "stress", f"{STRESS_SECONDS}")
    with free.running(*words) as first, free.running(*words) as second:
        for _ in range(CYCLES):
            driver.load_shim()
            start = driver.world.limited("a", LIMIT).start
            assert driver.machine.run("calls", "stress", "0.05", start=start).code == 0
            driver.unload_shim()
        for each in (first, second):
            assert not each.has_ended
            each.kill(signal.SIGTERM)
            assert each.wait_for_end().out.endswith(" 0 not opened, 0 wrong\n")
