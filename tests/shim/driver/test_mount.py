"""The driver leaves no mount behind, however it ends, and works again when it is restarted."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.driver.build import FakeDriverPrograms
from tests.fakes.driver.driver import FakeDriver
from tests.shim.driver import parameters as nv
from tests.shim.driver.caller import DriverCaller
from tests.support.polling import wait_until

NAMES = {"nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "version", "state", "refuse"}


def test_the_folder_contains_the_files_of_the_driver(driver: FakeDriver) -> None:
    assert {path.name for path in driver.folder.iterdir()} == NAMES
    assert (driver.folder / "version").read_text() == "580.95.05\n"
    assert not (driver.folder / "nvidia7").exists()
    assert driver.control.read_bytes() == b""


def test_the_folder_is_a_plain_one_after_unmounting(programs: FakeDriverPrograms, tmp_path: Path) -> None:
    driver = FakeDriver(programs.server, tmp_path / "dev")
    with driver:
        assert driver.folder.is_mount()
    assert not driver.folder.is_mount()
    assert list(driver.folder.iterdir()) == []


def test_the_folder_is_unmounted_after_a_kill_with_open_files(programs: FakeDriverPrograms, tmp_path: Path) -> None:
    with FakeDriver(programs.server, tmp_path / "dev") as driver:
        caller = DriverCaller(driver.control)
        os.kill(driver.pid, 9)
        wait_until(lambda: driver.returncode() is not None)
        assert caller.call(nv.FREE, nv.Free()) in {errno.ENOTCONN, errno.ECONNABORTED}
        with contextlib.suppress(OSError):  # the driver is gone
            os.close(caller.file)
    assert not driver.folder.is_mount()
    with driver, DriverCaller(driver.control) as caller:
        assert caller.try_make(nv.VIDEO_MEMORY, nv.Memory(size=1)).status == nv.OK


def test_the_folder_is_unmounted_when_its_starter_was_killed(programs: FakeDriverPrograms, tmp_path: Path) -> None:
    """Kill -9 for the test itself: the end of its pipe is enough."""
    folder = tmp_path / "dev"
    script = (
        "import os, sys, pathlib; from tests.fakes.driver.driver import FakeDriver\n"
        "FakeDriver(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])).start()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, programs.server, folder], timeout=20, check=False)
    wait_until(lambda: not folder.is_mount())
