"""What is missing for the kernel module: each thing in one sentence, and all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.simulated_kmod import SimulatedKmod, write_proc
from vrampack.agent.limits.kmod.preflight import find_preflight_problem


def loaded(module: SimulatedKmod, **state: object) -> None:
    for name, value in state.items():
        setattr(module, name, value)


MISSING: dict[str, tuple[Callable[[SimulatedKmod], None], str]] = {
    "nothing": (lambda _: None, ""),
    "the module": (lambda m: loaded(m, is_loaded=False), "/proc/cgpu_km is not there: load the kernel module"),
    "its place before the driver, which it may be given back": (lambda m: loaded(m, is_attached=False), ""),
    "its probe for managed memory": (lambda m: loaded(m, uvm="unguarded"), "uvm: unguarded"),
    "a profile that lets it be written": (lambda m: loaded(m, is_forbidden=True), "AppArmor"),
}


@pytest.mark.parametrize(("make", "why"), MISSING.values(), ids=MISSING)
def test_each_missing_requirement_is_reported(tmp_path: Path, make: Callable[[SimulatedKmod], None], why: str) -> None:
    module = SimulatedKmod()
    make(module)
    found = find_preflight_problem(module.open_nodes, cgroup_version=2, proc=write_proc(tmp_path))
    assert why in found
    assert bool(found) == bool(why)
    assert module.commands == []


def test_preflight_passes_while_nvidia_uvm_is_not_loaded(tmp_path: Path) -> None:
    module = SimulatedKmod()
    module.uvm = "absent"
    assert find_preflight_problem(module.open_nodes, cgroup_version=2, proc=write_proc(tmp_path)) == ""


def test_a_missing_capability_is_reported_with_the_way_to_grant_it(tmp_path: Path) -> None:
    proc = write_proc(tmp_path, capabilities=0xFFFFFF & ~(1 << 21))
    module = SimulatedKmod()
    why = "the agent has no CAP_SYS_ADMIN: manifests/agent/kmod gives it to the agent's pod"
    for is_unreadable in (False, True):
        module.is_unreadable = is_unreadable
        assert find_preflight_problem(module.open_nodes, cgroup_version=2, proc=proc) == why


def test_agent_must_share_the_nodes_pid_namespace_on_cgroup_v1(tmp_path: Path) -> None:
    """The module takes a process number of the initial namespace."""
    nodes = SimulatedKmod().open_nodes
    proc = write_proc(tmp_path, pid_namespace="pid:[4026532999]")
    assert "hostPID" in find_preflight_problem(nodes, cgroup_version=1, proc=proc)
    assert find_preflight_problem(nodes, cgroup_version=2, proc=proc) == ""


def test_all_missing_requirements_are_reported_together(tmp_path: Path) -> None:
    module = SimulatedKmod()
    module.uvm = "unguarded"
    proc = write_proc(tmp_path, capabilities=0, pid_namespace="pid:[1]")
    found = find_preflight_problem(module.open_nodes, cgroup_version=1, proc=proc)
    assert found.count("; ") == 2
