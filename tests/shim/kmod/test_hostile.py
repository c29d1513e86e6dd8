"""Hostile tenants: they keep others waiting, or use a way in that is not watched; and events at a bad moment."""

from __future__ import annotations

import errno
import re

import pytest

from tests.fakes.driver.driver import MIB
from tests.machine import stock
from tests.machine.kernels import Kernel
from tests.shim.kmod.conftest import SECOND_MODULE
from tests.shim.kmod.shares import scale_races_for_kernel
from tests.shim.kmod.world import CARDS, CONTROL, DRIVER, NODES, KmodWorld, fails_with
from tests.support.limit_cases import MANAGED_REFUSED, REFUSED
from tests.support.polling import wait_until

LIMIT = {0: 4301}
MOST_PROCESSES = 4096
ROUNDS = 30
FAKE = f"{DRIVER}/fake"
with_memory_that_never_comes = pytest.mark.parametrize("kernel", stock.NAMES, indirect=True)
"""The debug kernel has no userfaultfd."""


@with_memory_that_never_comes
def test_a_call_that_never_ends_blocks_no_command(empty: KmodWorld) -> None:
    """It is stuck in our code, since its parameters never arrive; detaching does not wait for it, and unloading is refused."""
    empty.load_driver()
    empty.load_shim()
    place = empty.limited("a", LIMIT)
    with place.running("hostile", "call") as hostile:
        hostile.wait_for_line("stuck")
        assert empty.state()["cards"] == "watched"
        empty.command("detach")
        assert empty.state()["cards"] == "unwatched"
        empty.command("attach")
        assert place.run("app", "4302").lines == [REFUSED]
        empty.command("detach")
        with fails_with(errno.EAGAIN):
            empty.machine.rmmod("vrampack")
        hostile.resume()
        assert hostile.wait_for_end().lines[-1] == "through"
    empty.machine.rmmod("vrampack")


@with_memory_that_never_comes
def test_the_module_can_be_unloaded_once_a_stuck_process_is_killed(empty: KmodWorld) -> None:
    """When its process is killed, everything goes."""
    empty.load_driver()
    empty.load_shim()
    with empty.limited("a", LIMIT).running("hostile", "call") as hostile:
        hostile.wait_for_line("stuck")
        empty.command("detach")
        hostile.kill()
        hostile.wait_for_end()
    empty.machine.rmmod("vrampack")
    empty.machine.rmmod("nvidia")


@with_memory_that_never_comes
def test_unloading_restores_the_driver_before_it_waits_for_a_reader(empty: KmodWorld) -> None:
    """Everyone may read the version, into memory that never arrives; the driver has its device back all the same."""
    empty.load_driver()
    empty.load_uvm()
    empty.load_shim()
    place = empty.limited("a", LIMIT)
    with place.running("hostile", "read", f"{NODES}/version") as reader:
        reader.wait_for_line("stuck")
        going = empty.machine.start("call", "rmmod", "vrampack")
        wait_until(lambda: "cgpu_km" not in empty.machine.names("/proc"), what="that its nodes go")
        assert place.run("app", "5000").lines == ["allocated 5000 MiB"]
        assert place.run("app", "--managed", "1").lines == ["allocated 1 MiB managed"]
        empty.machine.rmmod("nvidia_uvm")
        empty.machine.rmmod("nvidia")
        assert not going.has_ended
        reader.kill()
        assert going.wait_for_end().code == 0


def test_a_driver_that_hangs_in_an_open_blocks_no_command(empty: KmodWorld) -> None:
    """Neither `detach` nor a container that is added later; the module is not unloaded beneath tasks that wait."""
    empty.load_driver()
    empty.load_shim()
    limited, free = empty.limited("a", LIMIT), empty.unlimited("b")
    empty.machine.write(FAKE, "stall\n")
    with limited.running("app", "4302") as first, free.running("app", "5000") as second:
        wait_until(lambda: empty.state()["files"] == "1", what="that one is managed")
        empty.limited("c", LIMIT)
        empty.command("detach")
        with fails_with(errno.EAGAIN):
            empty.machine.rmmod("vrampack")
        empty.machine.write(FAKE, "go\n")
        assert first.wait_for_end().lines == [REFUSED]
        assert second.wait_for_end().lines == ["allocated 5000 MiB"]


@pytest.mark.parametrize("driver", ["new", "old"])
def test_memory_that_outlives_its_handle_in_a_mapping_stays_charged(empty: KmodWorld, driver: str) -> None:
    """nvidia-uvm's own duplicate keeps it until its mapping ends, also when all control files are closed."""
    empty.load_driver(driver)
    empty.load_uvm(driver)
    empty.load_shim()
    place = empty.limited("a", LIMIT).inside(env={"RM_BRANCH": "535" if driver == "old" else "580"})
    with place.running("hostile", "outlive", "1000") as hostile:
        hostile.wait_for_line("started")
        hostile.resume()
        hostile.wait_for_line("kept 4000 MiB, then 0x51")
        hostile.wait_for_line("kept")
        assert empty.driver().cards[0].used == empty.card("a").used == 4000 * MIB
        hostile.resume()
        hostile.wait_for_line("closed")
        assert (empty.instances()["a"].fields["files"], empty.card("a").used) == ("0", 3000 * MIB)
        empty.command("detach")
        empty.command("attach")
        assert place.run("app", "1302").lines == [REFUSED]
        assert empty.driver().cards[0].used == empty.card("a").used == 3000 * MIB
        hostile.kill()
        hostile.wait_for_end()
    wait_until(lambda: empty.card("a").used == 0, what="that the mappings end")
    assert place.run("app", "4300").lines == ["allocated 4300 MiB"]


def test_a_program_started_before_its_limit_can_still_map_memory(empty: KmodWorld) -> None:
    """Its file is not managed, so its memory is not counted: all of the card but what the driver reserves."""
    empty.load_driver()
    empty.load_uvm()
    empty.load_shim()
    place = empty.host().inside(cgroup="a")
    with place.running("hostile", "outlive", "1000") as program:
        program.wait_for_line("started")
        empty.limited("a", LIMIT)
        program.resume()
        program.wait_for_line("kept 15000 MiB, then 0x51")
        program.wait_for_line("kept")
        assert empty.card("a").used == 0


def test_another_container_s_memory_is_not_mapped(empty: KmodWorld) -> None:
    """No container would be charged for it once its owner has freed it."""
    empty.load_driver()
    empty.load_uvm()
    empty.load_shim()
    places = [empty.limited(name, LIMIT) for name in ("a", "b")]
    with places[0].running("hostile", "lend", "1000") as lender:
        lent = re.fullmatch(r"(\d+) (\d+)", lender.read_line())
        assert lent
        lender.wait_for_line("lent")
        assert places[1].run("hostile", "borrow", *lent.groups()).lines == ["borrowed: 0x1b"]
        assert places[0].run("hostile", "borrow", *lent.groups()).lines == ["borrowed: 0x0"]
        assert (empty.card("a").used, empty.card("b").used) == (1000 * MIB, 0)


def test_a_kernel_thread_without_an_owner_cannot_open_the_driver(world: KmodWorld) -> None:
    """Before 5.12 those of io_uring had no cgroup of the process's. A second module, which looks for the driver by one, is refused."""
    with fails_with(errno.ENODEV):
        world.machine.insmod(SECOND_MODULE)
    assert "vrampacl: /dev/nvidiactl: cannot be opened (-1)" in world.machine.log()


@pytest.mark.parametrize("kernel", ["6.1"], indirect=True)
def test_the_processes_of_a_container_are_bounded(world: KmodWorld) -> None:
    """All are searched when one comes and at each read; other containers are not slowed down."""
    place, other = world.limited("a", LIMIT), world.limited("b", LIMIT)
    with place.running("hostile", "crowd", f"{MOST_PROCESSES + 1}") as hostile:
        hostile.wait_for_line(f"{MOST_PROCESSES}, then {errno.EMFILE}", timeout=300)
        hostile.wait_for_line("opened")
        assert world.instances()["a"].fields["files"] == f"{MOST_PROCESSES}"
        assert other.run("app", "1").lines == ["allocated 1 MiB"]
        hostile.kill()
        hostile.wait_for_end()
    wait_until(lambda: world.instances()["a"].fields["files"] == "0", what="that the files are closed")
    assert place.run("app", "1").lines == ["allocated 1 MiB"]
    world.forget()


def test_an_unguardable_uvm_is_not_loaded_while_a_container_is_limited(empty: KmodWorld) -> None:
    """A process that has the driver open already could map it."""
    empty.load_driver()
    empty.load_shim()
    place = empty.limited("a", LIMIT)
    with fails_with(errno.EIO):
        empty.machine.insmod("/lib/strange/nvidia-uvm.ko")
    assert empty.state()["uvm"] == "absent"
    assert place.run("app", "1").lines == ["allocated 1 MiB"]
    empty.load_uvm()
    assert empty.state()["uvm"] == "guarded"
    assert place.run("app", "--managed", "1").lines == [MANAGED_REFUSED]


def test_a_uvm_unloaded_while_a_container_is_added_is_guarded_when_reloaded(empty: KmodWorld, kernel: Kernel) -> None:
    """During its unload it can still be found but not probed: that state does not last."""
    empty.load_driver()
    empty.load_shim()
    empty.limited("a", LIMIT)
    identity = f"cgroup={empty.machine.inode('/sys/fs/cgroup/a')}"
    with empty.host().running("hostile", "repeat", CONTROL, f"add a {identity} 0={4301 * MIB}") as adding:
        adding.wait_for_line("repeats")
        for _ in range(scale_races_for_kernel(kernel, ROUNDS)):
            empty.load_uvm()
            assert empty.state()["uvm"] == "guarded"
            empty.machine.rmmod("nvidia_uvm")
        assert not adding.has_ended


def test_card_numbers_are_forgotten_when_the_driver_is_unloaded(empty: KmodWorld) -> None:
    """Under the next driver the same card has another minor, also for an instance that was there before."""
    empty.load_driver()
    empty.load_shim()
    place = empty.limited("a", {0: 4000, 2: 1000})
    assert place.run("app", "4000").lines == ["allocated 4000 MiB"]
    empty.command("detach")
    empty.machine.rmmod("nvidia")
    first, *_ = CARDS.split(",")
    empty.load_driver("new", f"cards={first.removesuffix(':0')}:2")
    empty.command("attach")
    assert place.run("app", "1001").lines == [REFUSED]
    assert place.run("app", "1000").lines == ["allocated 1000 MiB"]
    assert (empty.card("a", 2).peak, empty.card("a", 2).refused) == (1000 * MIB, 1)
