"""Memory lives as long as the open file it was taken through, however that file is held, and ends with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.driver.build import FakeDriverPrograms
from tests.fakes.driver.driver import MIB, FakeDriver
from tests.shim.driver import parameters as nv
from tests.shim.driver.caller import DriverCaller
from tests.shim.driver.holding_program import hold_memory
from tests.support.polling import wait_until


def used(driver: FakeDriver) -> int:
    return driver.state().cards[0].used


ENDS: dict[str, Callable[[subprocess.Popen[str]], None]] = {
    "well": lambda process: process.terminate(),
    "by kill -9": lambda process: process.kill(),
    "by a crash": lambda process: process.send_signal(signal.SIGSEGV),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_memory_of_an_ended_process_is_freed(
    driver: FakeDriver, programs: FakeDriverPrograms, end: Callable[[subprocess.Popen[str]], None]
) -> None:
    with hold_memory(programs.app, driver, "3193") as process:
        card = driver.state().cards[0]
        assert card.used == 3193 * MIB
        assert card.by_process == {process.pid: 3193 * MIB}
        end(process)
    assert used(driver) == 0
    assert driver.state().files == 0


def test_a_child_that_holds_the_file_keeps_the_memory_allocated(
    driver: FakeDriver, programs: FakeDriverPrograms
) -> None:
    command = [str(programs.app), "--control", str(driver.control), "--fork", "64"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert [parent.stdout.readline(), parent.stdout.readline()] == ["allocated 64 MiB\n", "holding\n"]
        assert parent.wait(timeout=10) == 0
        assert used(driver) == 64 * MIB
        # The driver still counts it for the process that took it, which is gone.
        assert driver.state().cards[0].by_process == {parent.pid: 64 * MIB}
        child = children_holding(driver.control)
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: used(driver) == 0)


def children_holding(control: Path) -> int:
    """The process that has that file open."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(link.readlink() == control for link in (folder / "fd").iterdir()):
                return int(folder.name)
        except OSError:
            continue  # it ended meanwhile
    raise LookupError(f"no process has {control} open")


def test_a_duplicate_descriptor_is_the_same_file(driver: FakeDriver) -> None:
    caller = DriverCaller(driver.control)
    caller.allocate_memory(MIB)
    second = os.dup(caller.file)
    os.close(caller.file)
    assert used(driver) == MIB
    caller.file = second
    assert caller.report([nv.HEAP_FREE])
    os.close(second)
    assert used(driver) == 0


def test_a_file_in_a_socket_message_stays_open(driver: FakeDriver) -> None:
    """Sent over a socket and closed here, it is held by the message alone."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with DriverCaller(driver.control) as caller:
        caller.allocate_memory(MIB)
        socket.send_fds(left, [b"x"], [caller.file])
    assert used(driver) == MIB
    _, (received, *_), _, _ = socket.recv_fds(right, 1, 1)
    assert used(driver) == MIB
    os.close(received)
    assert used(driver) == 0
    left.close()
    right.close()


def test_a_client_can_be_used_only_through_its_own_file(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as mine, DriverCaller(driver.control) as other:
        assert (
            other.try_make(nv.VIDEO_MEMORY, nv.Memory(size=1), root=mine.client, parent=mine.device).status
            == nv.BAD_CLIENT
        )
        other.client, own = mine.client, other.client
        assert other.free_object(mine.device) == nv.BAD_CLIENT
        other.client = own
        assert driver.state().objects == 6


SUBTREES: dict[str, Callable[[DriverCaller], int]] = {
    "device": lambda caller: caller.device,
    "client": lambda caller: caller.client,
}


@pytest.mark.parametrize("top", SUBTREES.values(), ids=SUBTREES)
def test_freeing_an_object_frees_what_is_below_it(driver: FakeDriver, top: Callable[[DriverCaller], int]) -> None:
    with DriverCaller(driver.control) as caller:
        for _ in range(3):
            caller.allocate_memory(MIB)
        below = caller.make(nv.VIDEO_MEMORY, nv.Memory(size=MIB), parent=caller.subdevice)
        assert caller.free_object(below) == nv.OK
        assert caller.free_object(top(caller)) == nv.OK
        assert used(driver) == 0
        assert driver.state().objects in {0, 1}


def test_memory_lives_while_a_duplicate_does(driver: FakeDriver) -> None:
    """Even one in another file; it is counted once, for a process that has it."""
    with DriverCaller(driver.control) as giver, DriverCaller(driver.control) as taker:
        memory = giver.allocate_memory(MIB)
        copy = taker.dup(giver, memory)
        assert copy.status == nv.OK
        assert used(driver) == MIB
        assert giver.free_object(memory) == nv.OK
        assert used(driver) == MIB
        assert taker.free_object(copy.new) == nv.OK
        assert used(driver) == 0


def test_a_duplicate_outlives_the_file_of_the_original(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as taker:
        with DriverCaller(driver.control) as giver:
            copies = [taker.dup(giver, giver.allocate_memory(MIB)).new for _ in range(3)]
        assert used(driver) == 3 * MIB
        assert taker.free_object(copies[1]) == nv.OK
        assert used(driver) == 2 * MIB
    assert used(driver) == 0


def test_another_process_can_duplicate_shared_memory(driver: FakeDriver, programs: FakeDriverPrograms) -> None:
    """It is counted for the first process, and for the second once the first has ended."""
    command = [str(programs.app), "--control", str(driver.control), "--hold", "--share", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as giver:
        assert giver.stdout is not None
        _, shared, _ = [giver.stdout.readline() for _ in range(3)]
        with hold_memory(programs.app, driver, "--take", shared.removeprefix("shared ").strip()) as taker:
            assert driver.state().cards[0].by_process == {giver.pid: 100 * MIB}
            giver.kill()
            giver.wait()
            assert driver.state().cards[0].by_process == {taker.pid: 100 * MIB}
            taker.kill()
    assert used(driver) == 0


def test_another_process_cannot_duplicate_unshared_memory(driver: FakeDriver, programs: FakeDriverPrograms) -> None:
    with DriverCaller(driver.control) as giver:
        name = f"{giver.client:x}:{giver.allocate_memory(MIB):x}"
        command = [str(programs.app), "--control", str(driver.control), "--take", name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert (done.returncode, done.stdout) == (1, "error 1: cudaErrorInvalidValue (status 0x1b)\n")


def test_only_memory_is_duplicated(driver: FakeDriver) -> None:
    with DriverCaller(driver.control) as giver, DriverCaller(driver.control) as taker:
        assert taker.dup(giver, giver.device).status == nv.NOT_SUPPORTED
        assert taker.dup(giver, 99).status == nv.NO_SUCH_OBJECT


def test_a_process_is_counted_by_its_host_pid(driver: FakeDriver, programs: FakeDriverPrograms) -> None:
    """In a pid namespace of its own it is 1; the driver's figure names it as the host does."""
    command = ["unshare", "--pid", "--fork", "--kill-child", str(programs.app), "--control", str(driver.control)]
    with subprocess.Popen([*command, "--hold", "10"], stdout=subprocess.PIPE, text=True) as outer:
        assert outer.stdout is not None
        assert [outer.stdout.readline(), outer.stdout.readline()] == ["allocated 10 MiB\n", "holding\n"]
        (pid,) = driver.state().cards[0].by_process
        assert Path(f"/proc/{pid}/exe").resolve() == programs.app
        outer.kill()
    wait_until(lambda: used(driver) == 0)
