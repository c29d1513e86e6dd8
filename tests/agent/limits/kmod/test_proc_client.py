"""The client of /proc/cgpu_km: what it reads is typed, and each refusal becomes a sentence that names field and fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.simulated_kmod import MIB, SimulatedKmod
from vrampack.agent.limits.contract import ModuleState
from vrampack.agent.limits.kmod.errors import ModuleError
from vrampack.agent.limits.kmod.proc_client import (
    BudgetCard,
    BudgetProcess,
    CgroupId,
    KmodBudget,
    KmodClient,
    PidNamespace,
)
from vrampack.agent.limits.kmod.proc_files import ProcfsModuleFiles

SAID = """\
instance 1d3a.main id=3 cgroup=4711 weight=1 files=2
card 1d3a.main 0 limit=4509925376 used=3348103168 peak=3348103169 refused=1
card 1d3a.main 1 limit=0 used=0 peak=0 refused=0
process 1d3a.main 0 pid=812 used=3348103168
speed 1d3a.main 7
instance host id=9 pidns=4026532999 weight=4 files=1 removed=1
"""
READ = (
    KmodBudget(
        "1d3a.main",
        3,
        4711,
        1,
        2,
        is_removed=False,
        cards={0: BudgetCard(4301 * MIB, 3348103168, 3348103169, 1), 1: BudgetCard(0, 0, 0, 0)},
        processes=(BudgetProcess(0, 812, 3348103168),),
    ),
    KmodBudget("host", 9, None, 4, 1, is_removed=True),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Plain files, where nothing is refused."""
    (tmp_path / "inst_ctl").write_text(SAID)
    (tmp_path / "version").write_text("0.1.0\n")
    (tmp_path / "state").write_text(
        "attached: yes\ndriver: 580.95.05\nlayout: one device\nuvm: absent\nnew: thing\ninstances: 2\nfiles: 3\n"
    )
    return tmp_path


def test_instances_are_read_with_their_cards_and_processes(folder: Path) -> None:
    """Unknown kinds of lines, from a newer module, are skipped."""
    found = KmodClient(ProcfsModuleFiles(folder)).list_budgets()
    assert found == READ
    assert found[0].limit_bytes_by_minor == {0: 4301 * MIB}


def test_the_state_is_read(folder: Path) -> None:
    nodes = KmodClient(ProcfsModuleFiles(folder))
    assert nodes.read_state() == ModuleState("0.1.0", True, "580.95.05", "one device", "absent", 3)  # noqa: FBT003 - a value
    (folder / "state").write_text("attached: no\nuvm: guarded\ninstances: 0\nfiles: 0\n")
    assert nodes.read_state() == ModuleState("0.1.0", False, "", "", "guarded", 0)  # noqa: FBT003 - a value
    (folder / "state").unlink()
    assert nodes.read_state() is None


FOREIGN = {
    "a card without an instance": "card a 0 limit=1 used=1 peak=1 refused=0\n",
    "another instance's card": "instance a id=1 cgroup=2 weight=1 files=0\ncard b 0 limit=1 used=1 peak=1 refused=0\n",
    "a number that is none": "instance a id=one cgroup=2 weight=1 files=0\n",
    "a word without a value": "instance a id=1 cgroup weight=1 files=0\n",
    "half a line": "instance\n",
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_unreadable_module_output_is_reported(folder: Path, text: str) -> None:
    (folder / "inst_ctl").write_text(text)
    with pytest.raises(ModuleError, match=r"inst_ctl says .*do the module and vrampack have the same version"):
        KmodClient(ProcfsModuleFiles(folder)).list_budgets()


def test_a_command_is_one_write_in_the_documented_syntax(folder: Path) -> None:
    (folder / "inst_ctl").write_text("")
    KmodClient(ProcfsModuleFiles(folder)).add_budget("1d3a.main", CgroupId(4711), {1: 5, 0: 4301 * MIB}, weight=4)
    assert (folder / "inst_ctl").read_text() == "add 1d3a.main cgroup=4711 0=4509925376 1=5 weight=4"


def test_missing_module_is_reported_with_the_command_to_load_it(tmp_path: Path) -> None:
    with pytest.raises(
        ModuleError, match="/proc/cgpu_km is not there: load the kernel module with `modprobe vrampack`"
    ):
        KmodClient(ProcfsModuleFiles(tmp_path)).detach()


@pytest.fixture
def module() -> SimulatedKmod:
    return SimulatedKmod()


def add(module: SimulatedKmod, name: str = "a", number: int = 1) -> None:
    module.open_nodes.add_budget(name, CgroupId(number), {0: MIB})


def detached(module: SimulatedKmod) -> None:
    module.is_attached = False
    add(module)


def unguarded(module: SimulatedKmod) -> None:
    module.uvm = "unguarded"
    add(module)


def the_same_cgroup(module: SimulatedKmod) -> None:
    add(module)
    add(module, "b")


def one_too_many(module: SimulatedKmod) -> None:
    for number in range(17):
        add(module, f"n{number}", number)


def forbidden(module: SimulatedKmod) -> None:
    module.is_forbidden = True
    add(module)


REFUSED: dict[str, tuple[Callable[[SimulatedKmod], None], str]] = {
    "detached": (detached, "is detached from the driver: run `vrampack limits attach`"),
    "managed memory would pass": (unguarded, "uvm: unguarded"),
    "another's cgroup": (the_same_cgroup, r"add b cgroup=1 .*cgroup= or pidns= is that of another instance"),
    "too many on one card": (one_too_many, r"as many instances as its max_inst allows: write up to 25 there"),
    "a process that is gone": (
        lambda m: m.open_nodes.add_budget("a", PidNamespace(404), {0: 1}),
        "pidns= names no process",
    ),
    "no instance of this name": (lambda m: m.open_nodes.remove_budget("a"), "remove a: .*no instance has this name"),
    "no card": (lambda m: m.open_nodes.add_budget("a", CgroupId(1), {}), "refused by the module, whose log says why"),
    "a profile of the node": (forbidden, r"not permitted by the node's profiles \(AppArmor, SELinux\)"),
    "a name with a space": (lambda m: add(m, "a b"), "'a b' is not a name for an instance"),
    "a name that is too long": (lambda m: add(m, "a" * 128), "127 at most"),
    "a resize of a missing instance": (
        lambda m: m.open_nodes.resize_budget(0, "a", 1),
        "/proc/cgpu_km/0/a/memsize no longer exists",
    ),
    "too many cards": (lambda m: m.open_nodes.add_cards(range(2000)), "a command has 4095 bytes at most"),
}


@pytest.mark.parametrize(("do", "why"), REFUSED.values(), ids=REFUSED)
def test_a_refused_command_names_its_cause_and_the_fix(
    module: SimulatedKmod, do: Callable[[SimulatedKmod], None], why: str
) -> None:
    with pytest.raises(ModuleError, match=why):
        do(module)
