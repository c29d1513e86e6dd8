"""Finds what is missing to enforce limits with the kernel module: when an agent starts, and at every later check.

A module that is loaded but detached, or attached to another driver, is no reason to choose a weaker back end: an operator is
replacing the driver. Then `kmod` is chosen, and keeps the node from offering cards until everything works.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vrampack.agent.limits.cgroups import CGROUP_V2, PROC
from vrampack.agent.limits.contract import ModuleState
from vrampack.agent.limits.kmod.budget_owner import is_initial_pid_namespace
from vrampack.agent.limits.kmod.errors import ModuleError
from vrampack.agent.limits.kmod.proc_client import DETACHED, NOT_LOADED, UNGUARDED, KmodClient

CAP_SYS_ADMIN = 21


def find_preflight_problem(client: KmodClient, *, cgroup_version: int, proc: Path = PROC) -> str:
    """Everything that an agent here lacks, in one sentence; empty when nothing is missing, or only temporarily."""
    lacks = list(_list_missing(cgroup_version, proc))
    try:
        state = client.read_state()
        if state is None:
            return NOT_LOADED
        found = [*([UNGUARDED] if state.is_unguarded else ()), *lacks]
        if not lacks:
            client.check_writable()
    except ModuleError as error:
        found = lacks or [str(error)]  # what is missing explains why the state cannot be read
    return "; ".join(found)


def find_module_problem(state: ModuleState | None, driver_version: str) -> str:
    """Why the module, as it is now, cannot enforce a new limit; empty when it can."""
    return NOT_LOADED if state is None else "; ".join(_list_faults(state, driver_version))


def _list_faults(state: ModuleState, driver_version: str) -> Iterator[str]:
    if not state.is_attached:
        yield DETACHED
    elif state.driver_version != driver_version:
        yield (
            f"the kernel module is attached to driver {state.driver_version}, NVML is of {driver_version or 'none'}: "
            "stop what uses the card, run `vrampack limits detach`, then reload the driver"
        )
    if state.is_unguarded:
        yield UNGUARDED


def _list_missing(cgroup_version: int, proc: Path) -> Iterator[str]:
    if not _has_sys_admin(proc):
        yield "the agent has no CAP_SYS_ADMIN: manifests/agent/kmod gives it to the agent's pod"
    if cgroup_version != CGROUP_V2 and not is_initial_pid_namespace(proc):
        yield "cgroup v1, and the agent does not see the node's own process ids (hostPID)"


def _has_sys_admin(proc: Path) -> bool:
    (row,) = [line for line in (proc / "self/status").read_text().splitlines() if line.startswith("CapEff:")]
    return bool(int(row.split()[1], 16) >> CAP_SYS_ADMIN & 1)
