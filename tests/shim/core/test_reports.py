"""What a container is told about the card: its limit, what is left of it, and that it adds up."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.shim.core.script import AT, LIST, NESTED, ONLY_CARD, CoreScript
from tests.shim.core.steps import (
    BAD_STATE,
    CARD,
    ROOT,
    hold_memory,
    run_script,
)
from tests.shim.core.wire import (
    MIB,
)

Entries = list[tuple[int, int]]
TOTALS, FREES, RESERVED = (0x07, 0x08, 0x09, 0x0A, 0x20, 0x33), (0x16, 0x12, 0x34), 0x15
KIB_PER_MIB = 1024


def read_report(script: CoreScript, entries: Entries, wanted: Entries, *, say: str) -> None:
    wire = script.wire
    script.forwarded(0, wire.report(ROOT, CARD, entries))
    script.reads(NESTED + 4, b"".join(struct.pack("<II", *entry) for entry in wanted), say)
    script.writes(LIST, b"".join(struct.pack("<II", *entry) for entry in entries))
    script.forwarded(0, wire.listed_report(ROOT, CARD, len(entries), LIST), wrapped=True)
    script.reads(LIST, b"".join(struct.pack("<II", *entry) for entry in wanted), f"{say}, as a list")


def test_reports_show_the_limit_and_free_memory_of_the_container(script: CoreScript, runner: Path) -> None:
    """4301 MiB and 3194 used, on a card of 16160 that is nearly empty; what is no memory size stays."""
    script.forwarded(0, script.wire.memory(ROOT, CARD, 1, 3194 * MIB), handle=1, size=3194 * MIB)
    others = [(0x05, 16777216), (0x1D, 16000000), (0x0B, 4096), (0x0D, 15)]
    entries = [*((index, 16160 * KIB_PER_MIB) for index in TOTALS), *((index, 12000 * KIB_PER_MIB) for index in FREES)]
    wanted = [*((index, 4301 * KIB_PER_MIB) for index in TOTALS), *((index, 1107 * KIB_PER_MIB) for index in FREES)]
    read_report(
        script,
        [*others, *entries, (RESERVED, 400 * KIB_PER_MIB)],
        [*others, *wanted, (RESERVED, 0)],
        say="4301 - 1107 - 0 = 3194",
    )
    read_report(script, [(0x33, 0), (0x34, 0)], [(0x33, 0), (0x34, 0)], say="no protected memory")
    script.forwarded(0, script.wire.heap_function(ROOT, CARD, 5))
    run_script(script, runner)


def test_reserved_includes_memory_used_by_others(script: CoreScript, runner: Path) -> None:
    """The container uses 1000 of 4301 MiB, and the card has 500 left: 4301 - 500 - 2801 = 1000."""
    hold_memory(script, 1000 * MIB, 1)
    card = 16160 * KIB_PER_MIB
    read_report(
        script,
        [(0x07, card), (0x16, 500 * KIB_PER_MIB), (RESERVED, 0)],
        [(0x07, 4301 * KIB_PER_MIB), (0x16, 500 * KIB_PER_MIB), (RESERVED, 2801 * KIB_PER_MIB)],
        say="the card is fuller than the container",
    )
    run_script(script, runner)


def test_used_is_never_negative(script: CoreScript, runner: Path) -> None:
    """A limit above the card, and one below what is used."""
    hold_memory(script, 1000 * MIB, 1)
    script.limit(0, ONLY_CARD, 20000 * MIB)
    read_report(
        script,
        [(0x08, 16160 * KIB_PER_MIB), (0x16, 15000 * KIB_PER_MIB), (RESERVED, 7)],
        # 16160 - 15000 - 160 = 1000
        [(0x08, 16160 * KIB_PER_MIB), (0x16, 15000 * KIB_PER_MIB), (RESERVED, 160 * KIB_PER_MIB)],
        say="the limit is above the card",
    )
    read_report(
        script,
        [(0x08, 16160 * KIB_PER_MIB), (0x16, 15500 * KIB_PER_MIB), (RESERVED, 7)],
        # 16160 - 15500 is less than the 1000 used already
        [(0x08, 16160 * KIB_PER_MIB), (0x16, 15500 * KIB_PER_MIB), (RESERVED, 0)],
        say="the card says that less is used",
    )
    script.limit(0, ONLY_CARD, 500 * MIB)
    read_report(
        script,
        [(0x08, 16160 * KIB_PER_MIB), (0x16, 15000 * KIB_PER_MIB), (RESERVED, 7)],
        [(0x08, 500 * KIB_PER_MIB), (0x16, 0), (RESERVED, 0)],
        say="the limit is below what is used",
    )
    run_script(script, runner)


def test_report_lists_up_to_the_maximum_length_are_changed(script: CoreScript, runner: Path) -> None:
    most = script.wire.entries
    entries = [(0x07, 16160 * KIB_PER_MIB)] * most
    wanted = [(0x07, 4301 * KIB_PER_MIB)] * most
    read_report(script, entries, wanted, say="every entry there can be")
    script.writes(NESTED + 4 + 8 * most, struct.pack("<II", 0x07, 1 << 30))
    for count in (most + 1, 0x1FFFFFFF, 0xFFFFFFFF):
        script.forwarded(0, script.wire.report(ROOT, CARD, entries, count=count))
        script.reads(NESTED + 4 + 8 * most, struct.pack("<II", 0x07, 1 << 30), "behind the end")
    run_script(script, runner)


def test_failed_and_unlimited_reports_are_unchanged(script: CoreScript, runner: Path) -> None:
    wire = script.wire
    value = struct.pack("<II", 0x07, 16160 * KIB_PER_MIB)
    script.forwarded(0, wire.report(ROOT, CARD, [(0x07, 16160 * KIB_PER_MIB)]), status=BAD_STATE)
    script.reads(NESTED + 4, value, "the driver refused")
    call = wire.report(ROOT, CARD, [(0x07, 16160 * KIB_PER_MIB)])
    call.fields[24] = ("I", 4 + 8 * wire.entries + 8)
    script.forwarded(0, call)
    script.reads(NESTED + 4, value, "another size of parameters")
    script.limit(0, ONLY_CARD, (1 << 64) - 1)
    script.forwarded(0, wire.report(ROOT, CARD, [(0x07, 16160 * KIB_PER_MIB)]))
    script.reads(NESTED + 4, value, "no limit")
    run_script(script, runner)


def test_the_heap_report_shows_the_limit_too(script: CoreScript, runner: Path) -> None:
    call = script.wire.heap_function(ROOT, CARD, 5)
    hold_memory(script, 1000 * MIB, 1)
    call.fields.update({24: ("Q", 16160 * MIB), 32: ("Q", 15000 * MIB), 56: ("Q", 14000 * MIB)})
    script.forwarded(0, call)
    for offset, size in ((24, 4301), (32, 3301), (56, 3301)):
        script.reads(AT + offset, struct.pack("<Q", size * MIB), f"at {offset}")
    call.fields.update({32: ("Q", 300 * MIB), 56: ("Q", 200 * MIB)})
    script.forwarded(0, call)
    for offset, size in ((24, 4301), (32, 300), (56, 200)):
        script.reads(AT + offset, struct.pack("<Q", size * MIB), f"at {offset}")
    run_script(script, runner)
