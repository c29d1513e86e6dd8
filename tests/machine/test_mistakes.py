"""Complaints of a kernel fail the test, and a machine leaves no process, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.machine.conftest import MISTAKES
from tests.machine.debug import NAME as DEBUG
from tests.machine.kernels import Kernel, prepare_kernel
from tests.machine.machine import MachineError, VirtualMachine
from tests.support.polling import wait_until

FORGETFUL = """
import sys
from tests.machine.kernels import prepare_kernel
from tests.machine.machine import VirtualMachine

with VirtualMachine(prepare_kernel("5.10")) as machine:
    print(machine.pid, flush=True)
    sys.stdin.read()
"""


def make(machine: VirtualMachine, mistake: str) -> None:
    """Its init function fails, so it is never loaded."""
    with suppress(OSError):
        machine.insmod(MISTAKES, f"mistake={mistake}")


def test_a_warning_of_the_kernel_is_an_error(mistakes: Callable[[Kernel], Path]) -> None:
    stock = prepare_kernel("5.10")
    with VirtualMachine(stock, files={MISTAKES: mistakes(stock)}) as machine:
        make(machine, "none")
        machine.assert_quiet()
        make(machine, "warn")
        with pytest.raises(MachineError, match=r"WARNING: .*mistakes.c"):
            machine.assert_quiet()
        with pytest.raises(MachineError, match=r"went away before .*\n(.*\n)*.*NULL pointer dereference"):
            make(machine, "oops")


@pytest.mark.timeout(200)
def test_the_debug_kernel_sees_what_others_do_not(mistakes: Callable[[Kernel], Path]) -> None:
    debug = prepare_kernel(DEBUG)
    with VirtualMachine(debug, files={MISTAKES: mistakes(debug)}) as machine:
        make(machine, "none")
        machine.assert_quiet()
        # Locks first: a finding of KASAN switches lock checking off.
        for mistake, sign in (
            ("locks", "possible circular locking dependency"),
            ("sleep", "sleeping function called from invalid context"),
            ("overflow", "KASAN: slab-out-of-bounds"),
        ):
            make(machine, mistake)
            assert sign in machine.log()
        make(machine, "forget")
        with pytest.raises(MachineError, match="unreferenced object"):
            machine.assert_no_leaks()


def test_a_killed_process_leaves_no_machine_running() -> None:
    command = [sys.executable, "-c", FORGETFUL]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        pid = int(keeper.stdout.readline())
        os.kill(pid, 0)
        keeper.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the machine")
