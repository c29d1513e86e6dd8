"""Programs in a virtual machine: input and output, cgroups, users and namespaces, and machines that hang."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine.kernels import prepare_kernel
from tests.machine.machine import BOOT_SECONDS, CALL, MachineError, VirtualMachine
from tests.machine.program import GuestStart

CAP_SYS_ADMIN = 1 << 21


@pytest.fixture(scope="module")
def machine() -> Iterator[VirtualMachine]:
    with VirtualMachine(prepare_kernel("5.10"), files={"/etc/words": b"said\n"}) as booted:
        yield booted
        booted.assert_quiet()


def status(machine: VirtualMachine, start: GuestStart) -> dict[str, str]:
    text = machine.read("/proc/self/status", start=start)
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def test_output_and_exit_code_of_a_program_are_returned(machine: VirtualMachine) -> None:
    assert (machine.run("call", "read", "/etc/words").out, machine.run("call", "nothing").code) == ("said\n", 38)


def test_a_missing_program_is_reported(machine: VirtualMachine) -> None:
    ended = machine.run("nobody")
    assert (ended.code, ended.err) == (127, "/bin/nobody: No such file or directory\n")


def test_input_and_output_of_a_program_may_be_long(machine: VirtualMachine) -> None:
    """Longer than a pipe, a frame and the window; no byte is lost."""
    text = "".join(f"{number:07}\n" for number in range(8_500))
    machine.write("/tmp/long", text)
    assert machine.read("/tmp/long") == text


def test_a_system_call_that_fails_has_its_error(machine: VirtualMachine) -> None:
    for path, error in (("/nowhere/x", FileNotFoundError), ("/proc/self/nothing", FileNotFoundError)):
        with pytest.raises(error):
            machine.write(path, "x")
    with pytest.raises(PermissionError):
        machine.write("/etc/words", "x", start=GuestStart(uid=1000))
    with pytest.raises(FileExistsError):
        machine.mkdir("/tmp")


def test_a_program_runs_in_its_cgroup(machine: VirtualMachine) -> None:
    assert machine.read("/proc/self/cgroup", start=GuestStart(cgroup="a/b")) == "0::/a/b\n"
    assert "a" in machine.names("/sys/fs/cgroup")
    assert machine.inode("/sys/fs/cgroup/a") != machine.inode("/sys/fs/cgroup/a/b")


def test_cgroup_v1_hierarchies_are_separate_trees() -> None:
    with VirtualMachine(prepare_kernel("5.10"), cgroups=1) as machine:
        lines = machine.read("/proc/self/cgroup", start=GuestStart(cgroup="a/b")).splitlines()
        assert {line.partition(":")[2] for line in lines} >= {"memory:/a/b", "pids:/a/b"}


def test_a_program_has_the_user_and_the_capabilities_of_its_start(machine: VirtualMachine) -> None:
    assert status(machine, GuestStart(uid=1000))["Uid"].split() == ["1000"] * 4
    assert int(status(machine, GuestStart(uid=1000))["CapEff"], 16) == 0
    assert int(status(machine, GuestStart())["CapEff"], 16) & CAP_SYS_ADMIN
    assert int(status(machine, GuestStart(capabilities=CAP_SYS_ADMIN))["CapEff"], 16) == CAP_SYS_ADMIN


def test_a_program_may_have_namespaces_of_its_own(machine: VirtualMachine) -> None:
    assert status(machine, GuestStart(has_own_pid_namespace=True))["Pid"] == "1"
    with machine.running("call", "write", "/tmp/x", start=GuestStart(has_own_pid_namespace=True)) as first:
        beside = status(machine, GuestStart(shares_pid_namespace_of=first.pid))
        assert int(beside["NSpid"].split()[-1]) == 2
    assert machine.read("/proc/self/uid_map", start=GuestStart(has_own_user_namespace=True)).split() == ["0", "0", "1"]
    with pytest.raises(PermissionError):
        machine.call("mknod", "/tmp/null", "1", "3", start=GuestStart(has_own_user_namespace=True))


def test_a_program_is_killed_once_its_caller_stops_waiting(machine: VirtualMachine) -> None:
    with machine.running("call", "write", "/tmp/y") as program:
        assert program.pid > 1
    assert program.wait_for_end().code == -signal.SIGKILL


def test_a_program_that_does_not_end_is_an_error_that_shows_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that hangs is killed, and the next call fails at once."""
    with VirtualMachine(prepare_kernel("6.1")) as frozen:
        program = frozen.start(CALL, "read", "/dev/kmsg")
        with pytest.raises(MachineError, match=r"no end of call(?s:.*)sysrq: Show Blocked State"):
            program.wait_for_end(timeout=0.5)
        program.kill()
        program.wait_for_end()
        with monkeypatch.context() as soon:
            soon.setattr("tests.machine.machine.TIMEOUT_SECONDS", 0.5)
            with pytest.raises(MachineError, match="no end of call"):
                frozen.read("/dev/kmsg")
        assert frozen.read("/proc/uptime")
        monkeypatch.setattr("tests.machine.machine.PING_SECONDS", 0.5)
        program = frozen.start(CALL, "read", "/proc/uptime")
        os.kill(frozen.pid, signal.SIGSTOP)
        with pytest.raises(MachineError, match="no end of call"):
            program.wait_for_end(timeout=0.5)
        with pytest.raises(MachineError, match=r"(gone|went) away"):
            frozen.read("/proc/uptime")


def test_a_boot_that_hangs_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    def start(machine: VirtualMachine, folder: Path, line: socket.socket) -> subprocess.Popen[bytes]:
        process = real_start(machine, folder, line)
        if not starts:
            process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr("tests.machine.machine.BOOT_SECONDS", BOOT_SECONDS if starts else 0.2)
        starts.append(process.pid)
        return process

    real_start = VirtualMachine._start
    monkeypatch.setattr(VirtualMachine, "_start", start)
    with VirtualMachine(prepare_kernel("6.1")) as machine:
        assert machine.read("/proc/uptime")
    assert len(starts) == 2
