"""The kernel module off the driver and back, as a node's operator does it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.simulated_kmod import SimulatedKmod
from vrampack.agent.status.schema import LimitsStatus, ModuleStatus
from vrampack.cli.limits.main import command_module
from vrampack.cli.limits.table import format_table

Said = pytest.CaptureFixture[str]


@pytest.fixture
def module() -> SimulatedKmod:
    made = SimulatedKmod()
    for at, name in enumerate(("pod-a.main", "pod-b", "idle")):
        made.write_file("inst_ctl", f"add {name} cgroup={at + 1} 0=1")
    made.commands.clear()
    return made


@pytest.mark.parametrize("action", ["detach", "attach"])
def test_attach_and_detach_are_sent_to_the_module(module: SimulatedKmod, action: str, capsys: Said) -> None:
    assert command_module(action, module.open_nodes) == 0
    assert module.commands == [action]
    assert capsys.readouterr().out == f"{action}ed\n"


def test_files_that_are_open_are_counted_and_named(module: SimulatedKmod, capsys: Said) -> None:
    """It is detached; the driver cannot be unloaded while they are."""
    module.set_usage("pod-a.main", 0, 10, pid=813)
    module.set_usage("pod-a.main", 0, 20, pid=812)
    module.instances["pod-b"].files = 2
    assert command_module("detach", module.open_nodes) == 1
    assert not module.is_attached
    assert capsys.readouterr().err == (
        "vrampack: detached, but the driver cannot be unloaded yet: "
        "3 files of limited processes are open: pod-a.main 1 (pid 812, 813); pod-b 2\n"
    )


def unloaded(module: SimulatedKmod) -> None:
    module.is_loaded = False


def forbidden(module: SimulatedKmod) -> None:
    module.is_forbidden = True


REFUSED: dict[str, tuple[Callable[[SimulatedKmod], None], str]] = {
    "no module": (unloaded, "/proc/cgpu_km is not there: load the kernel module with `modprobe vrampack`"),
    "no permission": (forbidden, "detach: /proc/cgpu_km/inst_ctl: not permitted by the node's profiles"),
}


@pytest.mark.parametrize(("make", "why"), REFUSED.values(), ids=REFUSED)
def test_an_obstacle_to_detaching_is_reported(
    module: SimulatedKmod, make: Callable[[SimulatedKmod], None], why: str, capsys: Said
) -> None:
    make(module)
    assert command_module("detach", module.open_nodes) == 1
    assert f"vrampack: {why}" in capsys.readouterr().err


ABOVE = {
    "attached": (
        ModuleStatus("0.1.0", True, "580.95.05", "two devices", "guarded", 3),  # noqa: FBT003 - a value
        "Module 0.1.0: attached to driver 580.95.05, two devices, uvm guarded, 3 open files\n",
    ),
    "detached": (
        ModuleStatus("0.1.0", False, "", "", "absent", 0),  # noqa: FBT003 - a value
        "Module 0.1.0: detached, uvm absent, 0 open files\n",
    ),
    "gone": (None, "Module: not loaded\n"),
}


@pytest.mark.parametrize(("shown", "line"), ABOVE.values(), ids=ABOVE)
def test_the_status_begins_with_the_module(shown: ModuleStatus | None, line: str) -> None:
    status = LimitsStatus(node="gpu-0", enforcement="kmod", module=shown)
    assert format_table(status) == f"{line}No process of node gpu-0 holds anything.\n"
