"""Ways to a file of the driver other than open(2): either the limit holds there too, or they are refused."""

from __future__ import annotations

import pytest

from tests.fakes.driver.driver import MIB
from tests.machine import debug
from tests.machine.kernels import Kernel
from tests.machine.program import GuestStart
from tests.shim.kmod.world import KmodWorld
from tests.support.limit_cases import REFUSED

LIMIT_MIB = 4301
THREADS = {"now": "ring", "worker": "iou-wrk-", "worker2": "iou-wrk-", "poller": "iou-sqp-"}
"""How io_uring opens, and the beginning of the name of the thread that does: the program's own, or one of the kernel's."""


@pytest.mark.parametrize(("way", "thread"), THREADS.items(), ids=THREADS)
def test_files_opened_by_io_uring_are_limited_too(world: KmodWorld, kernel: Kernel, way: str, thread: str) -> None:
    """The debug kernel has no io_uring; elsewhere a program without a limit shows that the file is really opened this way."""
    place = world.limited("a", {0: LIMIT_MIB})
    world.new_peak()
    limited = place.run("ring", way, "4302", "4300", "2")
    peak = world.driver().cards[0].peak
    free = world.host().run("ring", way, "5000")
    world.forget()
    assert peak <= LIMIT_MIB * MIB
    if kernel.name == debug.NAME:
        assert {limited.err, free.err} == {"io_uring_setup: status 0x0, Function not implemented\n"}
        return
    assert free.lines == [f"opened by {thread}", "allocated 5000 MiB"]
    assert limited.lines == [f"opened by {thread}", REFUSED, "allocated 4300 MiB", REFUSED]


@pytest.mark.parametrize("way", THREADS)
def test_limits_apply_by_pid_namespace_on_cgroup_v1(old_world: KmodWorld, way: str) -> None:
    """There a kernel thread is identified by the namespace of the program that it works for."""
    machine = old_world.machine
    with machine.running("steps", "wait", start=GuestStart(has_own_pid_namespace=True)) as first:
        first.wait_for_line("waiting")
        old_world.command(f"add a pidns={first.pid} 0={LIMIT_MIB * MIB}")
        limited = machine.run("ring", way, "4302", "4300", "2", start=GuestStart(shares_pid_namespace_of=first.pid))
    old_world.command("remove a")
    assert limited.lines[1:] == [REFUSED, "allocated 4300 MiB", REFUSED]
