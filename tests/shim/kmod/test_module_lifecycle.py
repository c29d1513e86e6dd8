"""The module's life cycle: which drivers it loads beside, what it leaves behind, and that programs do not notice it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.machine.kernels import Kernel
from tests.machine.machine import VirtualMachine
from tests.shim.kmod.conftest import ModulesOfTests
from tests.shim.kmod.shares import scale_for_kernel
from tests.shim.kmod.world import NEW, OLD, UNKNOWN, KmodWorld, fails_with
from tests.support.limit_cases import MANAGED_REFUSED, REFUSED
from tests.support.polling import wait_until

LIMIT = {0: 4301}
CYCLES = 5
OTHERS = 800
"""Sessions of programs without a limit: about as long as the cycles take."""


@pytest.mark.parametrize("which", [NEW, OLD])
def test_the_module_supports_both_layouts_of_the_drivers_devices(empty: KmodWorld, which: str) -> None:
    """One device for all minors up to branch 535; a separate one for the control file from 545 on."""
    empty.load_driver(which)
    empty.load_shim()
    empty.load_uvm(which)
    assert empty.state()["layout"] == ("one device" if which == OLD else "two devices")
    branch = "535" if which == OLD else "580"
    assert empty.state()["driver"].startswith(f"{branch}.")
    place = empty.limited("a", LIMIT)
    assert place.run("app", "--driver", branch, "4300", "--then", "2").lines == ["allocated 4300 MiB", REFUSED]
    assert place.run("app", "--driver", branch, "--managed", "1").lines == [MANAGED_REFUSED]
    with empty.host().running("app", "--driver", branch, "--hold", "15000") as app:
        app.wait_for_line("holding")
        assert {whose for _, whose in empty.tables()} == {"own"}
        app.kill()
        app.wait_for_end()


@pytest.mark.timeout(300)
def test_the_module_loads_detaches_and_unloads_repeatedly(
    modules: ModulesOfTests, programs: list[Path], kernel: Kernel
) -> None:
    """Programs that open and close all the time never fail meanwhile; nothing is left at the end.

    One processor at a time: the first container with a limit, and the first privileged program, set probes in code
    that the others run.
    """
    with VirtualMachine(kernel, programs=programs, files=modules.files(), is_parallel=False) as machine:
        world = KmodWorld(machine)
        world.load_driver()
        world.load_uvm()
        others = machine.start(
            "stress", "2", f"{scale_for_kernel(kernel, OTHERS)}", "3", start=world.unlimited("free").start
        )
        for _ in range(CYCLES):
            world.load_shim()
            place = world.limited("a", LIMIT)
            assert place.inside(capabilities=0).run("app", "4302").lines == [REFUSED]
            assert world.state()["cards"] == "unwatched"
            assert place.run("app", "4302").lines == [REFUSED]
            assert world.state()["cards"] == "watched"
            world.command("detach")
            assert world.state()["attached"] == "no"
            world.unload_shim()
            assert place.run("app", "5000").lines == ["allocated 5000 MiB"]
        ended = others.wait_for_end(240)
        assert (ended.code, ended.err) == (0, "")
        assert " 0 refused" in ended.out
        machine.assert_no_leaks()
        machine.assert_quiet()


def test_open_files_stay_limited_after_detaching(empty: KmodWorld) -> None:
    """Neither the module nor the driver can be unloaded while it is needed."""
    empty.load_driver()
    empty.load_shim()
    place = empty.limited("a", LIMIT)
    with place.running("steps", "open", "take", "4000", "wait", "take", "302") as program:
        program.wait_for_line("waiting")
        empty.command("detach")
        for name in ("vrampack", "nvidia"):
            with pytest.raises(OSError) as failed:  # noqa: PT011 - either number
                empty.machine.rmmod(name)
            assert failed.value.errno in {errno.EAGAIN, errno.EBUSY}
        assert place.run("app", "5000").lines == ["allocated 5000 MiB"]
        with fails_with(errno.ENODEV):
            empty.limited("b", {0: 1})
        empty.command("attach")
        assert place.run("app", "302").lines == [REFUSED]
        empty.command("detach")
        program.resume()
        assert program.wait_for_end().lines[-1] == REFUSED
    empty.forget()
    empty.command("attach")
    assert empty.limited("a", LIMIT).run("app", "4302").lines == [REFUSED]


def test_a_busy_kernel_thread_blocks_no_command(empty: KmodWorld) -> None:
    """A driver's own thread may poll so. Only unloading waits for it, since the module's code goes."""
    empty.load_driver()
    empty.load_shim()
    place = empty.limited("a", LIMIT)
    assert place.run("app", "4302").lines == [REFUSED]
    empty.machine.insmod("/lib/spinner.ko")
    empty.command("detach")
    assert place.run("app", "5000").lines == ["allocated 5000 MiB"]
    empty.command("attach")
    assert place.run("app", "4302").lines == [REFUSED]
    empty.command("remove a")
    empty.command("detach")
    empty.machine.rmmod("spinner")
    empty.machine.rmmod("vrampack")


def test_the_driver_can_be_replaced_without_unloading_the_module(empty: KmodWorld) -> None:
    """Detached, the old driver goes and the new one comes; attached again, its version is read again."""
    empty.load_driver(OLD)
    empty.load_shim()
    with pytest.raises(OSError):  # noqa: PT011 - pinned, whatever the number
        empty.machine.rmmod("nvidia")
    empty.command("detach")
    empty.machine.rmmod("nvidia")
    with fails_with(errno.ENODEV):
        empty.command("attach")
    empty.load_driver(NEW)
    empty.command("attach")
    assert empty.state()["driver"].startswith("580.")
    assert empty.limited("a", LIMIT).run("app", "4302").lines == [REFUSED]


def test_the_module_does_not_load_on_an_unknown_driver(empty: KmodWorld) -> None:
    """It fails closed: the module is not loaded, so the node's agent offers nothing."""
    empty.load_driver(UNKNOWN)
    with fails_with(errno.EOPNOTSUPP):
        empty.load_shim()
    assert "470.1" in empty.machine.log()
    assert "cgpu_km" not in empty.machine.names("/proc")


def test_the_module_does_not_load_without_a_driver(empty: KmodWorld) -> None:
    with pytest.raises(OSError) as failed:  # noqa: PT011 - the number is below
        empty.load_shim()
    assert failed.value.errno in {errno.ENODEV, errno.ENXIO, errno.ENOENT}


def test_the_module_cannot_be_loaded_twice(empty: KmodWorld) -> None:
    empty.load_driver()
    empty.load_shim()
    with fails_with(errno.EEXIST):
        empty.load_shim()


def test_the_module_does_not_load_beside_another_interposer(empty: KmodWorld) -> None:
    """Such as a second copy under another name: the control file's table is no longer the driver's."""
    empty.load_driver()
    empty.machine.insmod("/lib/interposer.ko")
    try:
        with fails_with(errno.EBUSY):
            empty.load_shim()
    finally:
        empty.machine.rmmod("interposer")
    empty.load_shim()


def test_uvm_is_guarded_each_time_it_is_loaded(empty: KmodWorld) -> None:
    """It is loaded when it is first needed, often after the module."""
    empty.load_driver()
    empty.load_shim()
    assert empty.state()["uvm"] == "absent"
    place = empty.limited("a", LIMIT)
    for _ in range(3):
        empty.load_uvm()
        assert empty.state()["uvm"] == "guarded"
        assert place.run("app", "--managed", "1").lines == [MANAGED_REFUSED]
        empty.machine.rmmod("nvidia_uvm")
        wait_until(lambda: empty.state()["uvm"] == "absent", what="that uvm is gone")


def test_containers_are_refused_while_an_unguardable_uvm_is_loaded(empty: KmodWorld) -> None:
    """A later driver gives the function another name: no container is added any more, and the command says so."""
    empty.load_driver()
    empty.load_shim()
    empty.machine.insmod("/lib/strange/nvidia-uvm.ko")
    assert empty.state()["uvm"] == "unguarded"
    with fails_with(errno.EIO):
        empty.limited("a", LIMIT)
    empty.machine.rmmod("nvidia_uvm")
    empty.load_uvm()
    assert empty.limited("a", LIMIT).run("app", "--managed", "1").lines == [MANAGED_REFUSED]
