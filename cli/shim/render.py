"""The status as a table: a line for each container and card."""

from __future__ import annotations

from agent.shim import ShimStatus, ShownContainer
from cli.inspect.tables import aligned

HEADINGS = ("NAMESPACE", "POD", "CONTAINER", "CARD", "USED(MiB)", "LIMIT(MiB)", "PEAK(MiB)", "REFUSED", "PIDS(MiB)")
NUMBERS = (3, 4, 5, 6, 7)
_MIB = 1 << 20


def table(status: ShimStatus) -> str:
    """Sizes in MiB, rounded up: what is used is never shown as less."""
    if status.enforcement != "preload":
        return (
            f"Limits of node {status.node} are not held by the library: enforcement is {status.enforcement or '-'}.\n"
        )
    if not status.containers:
        return f"No process of node {status.node} holds anything; {status.connected} are connected.\n"
    return aligned([HEADINGS, *(_row(each) for each in status.containers)], right=NUMBERS)


def _row(each: ShownContainer) -> tuple[str, ...]:
    return (
        each.namespace or "-",
        each.pod or each.uid,
        each.container or "-",
        each.uuid if each.gpu is None else str(each.gpu),
        str(_mib(each.used_bytes)),
        "-" if each.limit_bytes is None else str(each.limit_bytes // _MIB),
        str(_mib(each.peak_bytes)),
        str(each.refused),
        ",".join(f"{process.pid}={_mib(process.held_bytes)}" for process in each.processes) or "-",
    )


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // _MIB)
