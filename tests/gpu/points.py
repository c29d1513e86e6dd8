"""The points that only a GPU decides, named by the rows of docs/gpu-verification.md: each runs, and says what it saw.

Those of programs run under the library, on a limit; those of the driver's own calls without it, as our simulated driver is
tried: they show whether it is right.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from tests.gpu.machine import GpuMachine, interception
from vrampack.agent.nvml.session import NvmlSession

LIMIT_MIB = 4301
MIB_64 = str(64 << 20)
TAKEN_MIB = 3192
"""Whole pieces of the driver's own rounding, so that every figure can be compared."""
OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""
NEAR_MIB = 2
CONTEXT_MIB = 16
"""What a client of the driver may cost beside its memory where no CUDA context is made. Guessed."""
PYTORCH = """
import json, torch
free, total = torch.cuda.mem_get_info()
held = torch.empty(2 << 30, dtype=torch.uint8, device="cuda").fill_(1)
try:
    torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
    refused = ""
except torch.OutOfMemoryError as error:
    refused = type(error).__name__
product = float((torch.ones(2048, 2048, device="cuda") @ torch.ones(2048, 2048, device="cuda"))[0, 0])
print(json.dumps({"total_mib": total >> 20, "refused": refused, "product": product}))
"""


@dataclass(frozen=True, slots=True)
class ObservedRow:
    """`ok` is None where the point could not be tried here, and `what` says why."""

    ok: bool | None
    what: str


Point: TypeAlias = Callable[[GpuMachine], Awaitable[ObservedRow]]


async def refusal(machine: GpuMachine) -> ObservedRow:
    """One allocation over the limit is error 2, and the process goes on."""
    ran = await machine.run(machine.cuda, "take", str(TAKEN_MIB))
    said = ran.said
    ok = ran.code == 0 and (said["error"], said["refused_with"], said["after_free"]) == (0, 2, 0)
    return ObservedRow(
        ok and said["taken_mib"] == TAKEN_MIB and said["more_mib"] <= 1024, ran.out.strip() or ran.complaint
    )


async def reports(machine: GpuMachine) -> ObservedRow:
    """The card looks as big as the limit, and its used memory is what is held."""
    async with machine.holding(TAKEN_MIB) as held:
        query = "--query-gpu=memory.total,memory.used,memory.free"
        ran = await machine.run("nvidia-smi", "-i", "0", query, "--format=csv,noheader,nounits")
        counted_mib = machine.held_bytes(held.get("pid", -1)) >> 20
    if ran.code:
        return ObservedRow(False, ran.complaint or ran.out)  # noqa: FBT003
    total, used, free = (int(part) for part in ran.out.split(","))
    ok = total == LIMIT_MIB and abs(used - counted_mib) <= NEAR_MIB and used + free <= total
    return ObservedRow(ok, f"nvidia-smi: total {total}, used {used}, free {free}; counted {counted_mib} MiB")


async def per_process(machine: GpuMachine) -> ObservedRow:
    """Our figure for a process equals NVML's except for the context, whose size is point 4."""
    async with machine.holding(TAKEN_MIB) as held:
        theirs = await _nvml_mib(machine, held.get("pid", -1))
        ours = machine.held_bytes(held.get("pid", -1)) >> 20
    if theirs is None:
        return ObservedRow(None, "nvidia-smi lists no process of that pid here")
    return ObservedRow(
        ours <= theirs, f"counted {ours} MiB, NVML {theirs} MiB: {theirs - ours} MiB that are not counted"
    )


async def context_overhead(machine: GpuMachine) -> ObservedRow:
    """What a process costs the card beside its own memory."""
    before = await machine.card_used_mib()
    async with machine.holding(2) as held:
        with_context = await machine.card_used_mib()
    return ObservedRow(held.get("error") == 0, f"{with_context - before - 2} MiB on {machine.card.name}")


async def two_containers(machine: GpuMachine) -> ObservedRow:
    """S1: two containers on one card, each with a limit of its own, hold more together than one of them may."""
    async with (
        machine.holding(TAKEN_MIB, container="first") as first,
        machine.holding(TAKEN_MIB, container="second") as second,
    ):
        seen = [await machine.run(machine.cuda, "view", container=name) for name in ("first", "second")]
        more = await machine.run(machine.cuda, "take", "2048", container="first")
        used_mib = await machine.card_used_mib()
    totals = [each.said.get("total_mib") for each in seen]
    ok = (
        (first.get("error"), second.get("error")) == (0, 0)
        and totals == [LIMIT_MIB, LIMIT_MIB]
        and used_mib >= 2 * TAKEN_MIB
        and more.said.get("error") == OUT_OF_MEMORY
        and more.said["taken_mib"] <= LIMIT_MIB - TAKEN_MIB
    )
    return ObservedRow(
        ok,
        f"each holds {TAKEN_MIB} MiB and sees {totals}; {used_mib} MiB in use; 2048 more in the first: {more.out.strip()}",
    )


async def own_figures(machine: GpuMachine) -> ObservedRow:
    """Our agent's own reading of NVML: the card, and what a process holds."""
    session = NvmlSession(pci_devices=Path("/sys/bus/pci/devices"), kernel_module=Path("/sys/module/nvidia"))
    inventory = session.list_gpus()
    async with machine.holding(TAKEN_MIB) as held:
        usage = session.read_usage()[0]
        utilization = session.read_utilization()
    condition = session.read_condition(inventory.gpus[0].uuid)
    ok = (
        inventory.gpus[0].uuid == machine.card.uuid and usage.used_bytes >> 20 >= TAKEN_MIB and not inventory.unreadable
    )
    return ObservedRow(ok, f"pid {held.get('pid')}: {inventory} {usage} {utilization} {condition}")


async def xid(machine: GpuMachine) -> ObservedRow:
    """A kernel that writes outside its memory is XID 31, and NVML names the card by its uuid."""
    session = NvmlSession(pci_devices=Path("/sys/bus/pci/devices"), kernel_module=Path("/sys/module/nvidia"))
    session.list_gpus()
    before = session.wait_for_xids(0)
    ran = await machine.run(machine.cuda, "fault")
    told = await asyncio.to_thread(session.wait_for_xids, 5)
    ok = told is not None and (31, machine.card.uuid) in {(each.number, each.uuid) for each in told}
    return ObservedRow(ok, f"before {before}, then {told}; the program: {ran.out.strip() or ran.complaint}")


async def managed_memory(machine: GpuMachine) -> ObservedRow:
    """Managed memory is refused, and cudaMalloc works afterwards."""
    ran = await machine.run(machine.cuda, "managed", "64")
    ok = ran.code == 0 and ran.said["plain_afterwards"] == 0 and (ran.said["managed"] or ran.said["touched"])
    return ObservedRow(bool(ok), ran.out.strip() or ran.complaint)


async def pytorch(machine: GpuMachine) -> ObservedRow:
    """PyTorch computes, sees the limit and gets its own out-of-memory error."""
    if find_spec("torch") is None:
        return ObservedRow(None, "no PyTorch here")
    ran = await machine.run(sys.executable, "-c", PYTORCH)
    said = ran.said
    ok = ran.code == 0 and said == {"total_mib": LIMIT_MIB, "refused": "OutOfMemoryError", "product": 2048.0}
    return ObservedRow(ok, ran.out.strip() or ran.complaint[-400:])


async def shared_between_processes(machine: GpuMachine) -> ObservedRow:
    """CUDA IPC: another process opens the memory."""
    ran = await machine.run(machine.cuda, "ipc", "64")
    return ObservedRow(ran.code == 0 and ran.said["opened_by_another_process"] == 0, ran.out.strip() or ran.complaint)


async def pools(machine: GpuMachine) -> ObservedRow:
    """cudaMallocAsync: given within the limit, refused above it."""
    ran = await machine.run(machine.cuda, "pool", "1024")
    return ObservedRow(
        ran.code == 0 and (ran.said["given"], ran.said["a_tebibyte"]) == (0, 2), ran.out.strip() or ran.complaint
    )


async def virtual_memory(machine: GpuMachine) -> ObservedRow:
    """cuMemCreate: given within the limit, refused above it."""
    within = await machine.run(machine.cuda, "virtual", "1024")
    above = await machine.run(machine.cuda, "virtual", "8192")
    ok = within.code == above.code == 0 and (within.said["created"], above.said["created"]) == (0, 2)
    return ObservedRow(
        ok, f"1 GiB {within.out.strip() or within.complaint}, 8 GiB {above.out.strip() or above.complaint}"
    )


async def cost(machine: GpuMachine) -> ObservedRow:
    """An allocation of 64 MiB and its free, with the library and without, in turn."""
    figures: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(5):
        for is_limited in (True, False):
            ran = await machine.run(machine.cuda, "churn", "200", is_limited=is_limited)
            if ran.code:
                return ObservedRow(False, ran.complaint)  # noqa: FBT003
            figures[is_limited].append(ran.said["ns_per_round"] / 1000)
    with_it, without = (sorted(figures[each])[2] for each in (True, False))
    return ObservedRow(True, f"{with_it:.0f} us with the library, {without:.0f} us without, median of five")  # noqa: FBT003


async def static_runtime(machine: GpuMachine) -> ObservedRow:
    """The program of all these points opens libcuda itself, as a statically linked CUDA runtime does."""
    ran = await machine.run(machine.cuda, "view")
    return ObservedRow(ran.code == 0 and ran.said["total_mib"] == LIMIT_MIB, ran.out.strip() or ran.complaint)


async def gives_back(machine: GpuMachine) -> ObservedRow:
    """After every point nothing is held: processes that ended gave back what they had."""
    left = machine.back_end.list_processes()
    return ObservedRow(
        not left, f"{len(left)} processes still hold something; runtime between: {interception() or 'none'}"
    )


def calls(*options: str, mib: int = 64, costs_mib: int | None = None) -> Point:
    """The test program of our simulated driver, on the real one: its calls succeed, and the card has less free."""

    async def point(machine: GpuMachine) -> ObservedRow:
        before = await machine.card_used_mib()
        async with machine.app(*options, str(mib)) as said:
            more = await machine.card_used_mib() - before
        expected = mib if costs_mib is None else costs_mib
        return ObservedRow(
            "error" not in said and abs(more - expected) <= CONTEXT_MIB, f"{said}; {more} MiB more in use"
        )

    return point


def requests(*arguments: str, said: str, costs_mib: int) -> Point:
    """One request for memory, with these attributes: what the driver answers, and how much less the card has."""

    async def point(machine: GpuMachine) -> ObservedRow:
        before = await machine.card_used_mib()
        async with machine.request(*arguments) as answer:
            more = await machine.card_used_mib() - before
        return ObservedRow(answer == said and abs(more - costs_mib) <= 1, f"{answer}; {more} MiB more in use")

    return point


async def dies(machine: GpuMachine) -> ObservedRow:
    """What a killed process had is free again."""
    before = await machine.card_used_mib()
    async with machine.app("512") as said:
        with_it = await machine.card_used_mib()
    after = await machine.card_used_mib()
    return ObservedRow(
        with_it - before >= 512 > after - before, f"{said}; in use {before}, {with_it}, then {after} MiB"
    )


async def imported(machine: GpuMachine) -> ObservedRow:
    """Exported to a file, its handle freed, imported and the file closed: it is there, until the new object is freed."""
    before = await machine.card_used_mib()
    async with machine.export("import", "64") as program:
        said = [await program.read_line()]
        held = await machine.card_used_mib() - before
        program.resume()
        said.append(await program.read_line())
        left = await machine.card_used_mib() - before
    ok = said == ["imported", "freed"] and abs(held - 64) <= CONTEXT_MIB and left <= CONTEXT_MIB
    return ObservedRow(ok, f"{', '.join(said)}; {held} MiB held, {left} MiB afterwards")


async def dma_buf(machine: GpuMachine) -> ObservedRow:
    """It keeps memory whose handle is freed; a kernel without dma-bufs says 0x56."""
    before = await machine.card_used_mib()
    async with machine.export("dmabuf", "64") as program:
        said = [await program.read_line(), await program.read_line()]
        held = await machine.card_used_mib() - before
    expected = {"dma-buf: 0x0": 64, "dma-buf: 0x56": 0}.get(said[0])
    ok = expected is not None and abs(held - expected) <= CONTEXT_MIB
    return ObservedRow(ok, f"{said[0]}; {held} MiB held")


DRIVER_POINTS: dict[str, Point] = {
    "D1 D2 D3 D5 D6 D18 the short form of an allocation": calls("--short"),
    "D1 D2 D3 D5 D6 D18 the long form": calls(),
    "4 KiB pages": calls("--pages", "4k"),
    "D13 wrapped": calls("--xfer"),
    "D17 by the heap call": calls("--heap"),
    "D12 a duplicate keeps it": calls("--dup"),
    "D11 freed with its device, and taken again": calls("--subtree"),
    "D4 a killed process gives back": dies,
    "D36 memory needs an owner": requests("40", MIB_64, "owner=0", said=f"0, status 0x39, {MIB_64} bytes", costs_mib=0),
    "D5 the card's memory in the machine's": requests(
        "40", MIB_64, "attr=0x2000000", said=f"0, status 0x1f, {MIB_64} bytes", costs_mib=0
    ),
    "D5 memory of the machine": requests(
        "3e", MIB_64, "attr=0x2800000", said=f"1, status 0x0, {MIB_64} bytes", costs_mib=0
    ),
    "D5 addresses": requests("50a0", MIB_64, "flags=0x80000", said=f"1, status 0x0, {MIB_64} bytes", costs_mib=0),
    "D6 from 2 MiB on": requests("40", "2097153", said="1, status 0x0, 4194304 bytes", costs_mib=4),
    "D6 below 2 MiB": requests("40", "1", "times=256", said="256, status 0x0, 65536 bytes", costs_mib=16),
    "D6 pages of 512 MiB": requests(
        "40", "1", "attr=0x1800000", "attr2=0x200000", said="1, status 0x0, 536870912 bytes", costs_mib=512
    ),
    "D7 4 KiB pages": requests(
        "40", "4096", "attr=0x800000", "times=1024", said="1024, status 0x0, 4096 bytes", costs_mib=64
    ),
    "D8 more than the card": requests("40", "0x10000000000", said="0, status 0x51, 1099511627776 bytes", costs_mib=0),
    "D29 a fixed address and its alignment": requests(
        "40",
        "65536",
        "attr=0x1000000",
        "flags=0x90",
        "alignment=0x100000000",
        said="1, status 0x0, 65536 bytes",
        costs_mib=4096,
    ),
    "D29 an alignment alone": requests(
        "40",
        "65536",
        "attr=0x1000000",
        "flags=0x80",
        "alignment=0x100000000",
        "times=16",
        said="16, status 0x0, 65536 bytes",
        costs_mib=1,
    ),
    "D33 what is imported lives on": imported,
    "D34 a dma-buf keeps memory": dma_buf,
}
"""Of the driver's own calls, without a limit: no root is needed, and no CUDA."""
POINTS: dict[str, Point] = {
    "D8 over the limit is error 2, and it goes on": refusal,
    "two containers share the card": two_containers,
    "the agent's reading of NVML": own_figures,
    "a fault of a program is XID 31": xid,
    "D9 D19 the card looks as big as the limit": reports,
    "D21 a process as NVML counts it": per_process,
    "D21 what a context costs": context_overhead,
    "D15 managed memory is refused": managed_memory,
    "D15 PyTorch works": pytorch,
    "D12 CUDA IPC": shared_between_processes,
    "D8 pools": pools,
    "D8 virtual memory": virtual_memory,
    "cost of an allocation": cost,
    "a runtime linked statically": static_runtime,
    "all is given back": gives_back,
    **DRIVER_POINTS,
}
BY_HAND = (
    "D10",
    "D14",
    "D16",
    "D20",
    "D22",
    "D23",
    "D24",
    "D25",
    "D26",
    "D27",
    "D28",
    "D30",
    "D31",
    "D32",
    "D35",
    "D37",
    "D38",
)
"""Rows that no program of the suite tries: by a trace of a CUDA program's calls, D22 to D26 by looking at the driver's modules,
D27 to D38 by a program of the simulated driver's."""


async def _nvml_mib(machine: GpuMachine, pid: int) -> int | None:
    query = ["nvidia-smi", "-i", "0", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    rows = [line.split(",") for line in (await machine.run(*query, is_limited=False)).out.splitlines() if line.strip()]
    found = {int(row[0]): row[1].strip() for row in rows}
    return int(found[pid]) if found.get(pid, "").isdigit() else None
