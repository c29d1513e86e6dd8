"""The programs print what CUDA's would, and the node sees the sum."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fakes.driver.build import FakeDriverPrograms
from tests.fakes.driver.driver import MIB, FakeDriver
from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import PROFILES
from tests.shim.driver.holding_program import hold_memory
from tests.support.polling import wait_until

QUERY = ("--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits")


def run(program: Path, driver: FakeDriver, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(program), "--control", str(driver.control), "--minor", "1", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_nvidia_smi_shows_the_sum_of_two_pods(driver: FakeDriver, programs: FakeDriverPrograms) -> None:
    """3193 MiB each: the card shows 6386, of 16130 with 256 reserved."""
    with hold_memory(programs.app, driver, "--minor", "1", "3193") as one:
        with hold_memory(programs.static_app, driver, "--minor", "1", "3193") as two:
            assert driver.state().cards[0].by_process == {one.pid: 3193 * MIB, two.pid: 3193 * MIB}
            for smi in (programs.smi, programs.static_smi):
                assert run(smi, driver, *QUERY).stdout == "16130, 6386, 9488\n"
                assert run(smi, driver, *QUERY, "--by-heap").stdout == "16130, 6386, 9488\n"
                assert "6386MiB /  16130MiB" in run(smi, driver).stdout
            two.terminate()
        assert run(programs.smi, driver, *QUERY).stdout == "16130, 3193, 12681\n"
        one.terminate()


def test_a_refused_allocation_ends_the_program(driver: FakeDriver, programs: FakeDriverPrograms) -> None:
    done = run(programs.app, driver, "10000", "6000")
    assert (done.returncode, done.stdout) == (1, "allocated 10000 MiB\nerror 2: cudaErrorMemoryAllocation\n")


SAYS = {
    "--dup": "allocated 64 MiB\nduplicated, and the first handle freed\nfree 15810 MiB of 16130 MiB\n",
    "--subtree": "allocated 64 MiB\nfreed the device with all below it\nallocated 64 MiB\nfree 15810 MiB of 16130 MiB\n",
    "--managed": "allocated 64 MiB managed\nfree 15874 MiB of 16130 MiB\n",
}


@pytest.mark.parametrize(("option", "said"), SAYS.items(), ids=SAYS)
def test_app_options_print_their_figures(
    driver: FakeDriver, programs: FakeDriverPrograms, option: str, said: str
) -> None:
    assert run(programs.app, driver, option, "--free", "64").stdout == said


def test_racing_programs_leave_nothing(driver: FakeDriver, programs: FakeDriverPrograms) -> None:
    """Three at once for a card that holds two: refusals are expected, 300 times each."""
    command = [str(programs.app), "--control", str(driver.control), "--minor", "1", "--loop", "300", "6000"]
    racing = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=60)[0].split() for process in racing]
    assert [int(words[0]) + int(words[2]) for words in said] == [300, 300, 300]
    card = driver.state().cards[0]
    assert card.used == 0
    assert card.peak <= card.total - 256 * MIB


def test_short_lived_programs_leave_nothing(driver: FakeDriver, programs: FakeDriverPrograms) -> None:
    """They open, allocate, free, fork and are killed, on a card that is too small for all."""
    command = [str(programs.race), "--control", str(driver.control), "--minor", "0", "--cycles", "600", "--most", "700"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    tally = {name: int(number) for number, name in (part.split() for part in done.stdout.split(", "))}
    assert min(tally["given"], tally["refused"], tally["freed"], tally["killed"], tally["children"]) > 0
    wait_until(lambda: driver.state().files == 0)
    state = driver.state()
    small = state.card("GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
    assert (small.used, state.objects) == (0, 0)
    assert 700 * MIB < small.peak <= small.total - 256 * MIB


def test_nvml_sees_the_processes(driver: FakeDriver, programs: FakeDriverPrograms, tmp_path: Path) -> None:
    """The stub's state file names who holds what, by the driver's own figures."""
    machine = FakeNvmlMachine(tmp_path / "nvml.state", gpus=next(iter(PROFILES.values())))
    with hold_memory(programs.app, driver, "--minor", "1", "100") as process:
        driver.show_to(machine)
        assert f"process {driver.cards[0].uuid} {process.pid} {100 * MIB}\n" in machine.state.read_text()
        process.kill()
    driver.show_to(machine)
    assert "process" not in machine.state.read_text()
