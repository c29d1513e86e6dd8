"""The status as a table: a line for each container and card, below a line for the kernel module."""

from __future__ import annotations

from collections.abc import Iterable

from vrampack.agent.limits.kmod.proc_client import KmodBudget
from vrampack.agent.status.schema import LimitedContainer, LimitsStatus, ModuleStatus
from vrampack.cards.units import MIB
from vrampack.cli.inspect.text_columns import align_columns

HEADINGS = ("NAMESPACE", "POD", "CONTAINER", "CARD", "USED(MiB)", "LIMIT(MiB)", "PEAK(MiB)", "REFUSED", "PIDS(MiB)")
RIGHT_COLUMNS = (3, 4, 5, 6, 7)


def format_table(status: LimitsStatus) -> str:
    """The table, with sizes in MiB, rounded up so that use never looks too low. Containers without their limit come last."""
    below = "".join(
        f"No limit is in force for container {each.container} of pod {each.namespace}/{each.pod}: the hook was not called.\n"
        for each in status.unguarded
    )
    return _format_usage(status) + below


def _format_usage(status: LimitsStatus) -> str:
    if status.enforcement not in {"kmod", "preload"}:
        held_by = status.enforcement or "-"
        return f"Limits of node {status.node} are not enforced by module or library: enforcement is {held_by}.\n"
    above = _describe_module(status.module) if status.enforcement == "kmod" else ""
    if not status.containers:
        connected = "" if status.enforcement == "kmod" else f"; {status.connected} are connected"
        return f"{above}No process of node {status.node} holds anything{connected}.\n"
    return above + align_columns(
        [HEADINGS, *(_build_row(each) for each in status.containers)], right_columns=RIGHT_COLUMNS
    )


def describe_open_files(count: int, instances: Iterable[KmodBudget]) -> str:
    """How many files of limited processes are open, and whose."""
    holders = []
    for each in instances:
        pids = ", ".join(str(pid) for pid in sorted({process.pid for process in each.processes}))
        if each.files:
            holders.append(f"{each.name} {each.files}{f' (pid {pids})' if pids else ''}")
    return f"{count} files of limited processes are open: {'; '.join(holders) or 'owners unknown'}"


def _describe_module(module: ModuleStatus | None) -> str:
    if module is None:
        return "Module: not loaded\n"
    attached = f"attached to driver {module.driver_version}, {module.layout}" if module.is_attached else "detached"
    return f"Module {module.version}: {attached}, uvm {module.uvm}, {module.files} open files\n"


def _build_row(each: LimitedContainer) -> tuple[str, ...]:
    return (
        each.namespace or "-",
        each.pod or each.uid,
        each.container or "-",
        each.uuid if each.gpu is None else str(each.gpu),
        str(_to_mib(each.used_bytes)),
        "-" if each.limit_bytes is None else str(each.limit_bytes // MIB),
        str(_to_mib(each.peak_bytes)),
        str(each.refused),
        ",".join(f"{process.pid}={_to_mib(process.held_bytes)}" for process in each.processes) or "-",
    )


def _to_mib(size_bytes: int) -> int:
    return -(-size_bytes // MIB)
