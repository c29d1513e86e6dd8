"""What is charged is at least what the driver's allocator pins, whatever the request says about its memory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.fakes.driver.build import SERVER
from tests.shim.core.building import ADDRESSES, build_program
from tests.shim.core.script import CoreScript
from tests.shim.core.steps import CARD, ROOT, run_script
from tests.shim.core.wire import MIB, NOT_SUPPORTED

CASES = int(os.environ.get("VRAMPACK_SIZE_CASES", "150000"))
"""The long form has 10,000,000."""
SECONDS = 100 + CASES // 20_000
FIXED, FORCED = 0x10, 0x100
HUGE, OF_512_MIB = 3 << 23, 2 << 20
DRIVER = ("behaviour", "alloc", "heap", "objects", "memory", "control", "exports", "uvm", "layout")


@pytest.fixture(scope="session")
def sizes(folder: Path) -> Path:
    """The core in front of the simulated driver's own sources."""
    sources = [str(SERVER / f"{name}.c") for name in DRIVER]
    return build_program(folder / "sizes", ["sizes.c", *sources], [*ADDRESSES, "-O2", f"-I{SERVER}"])


@pytest.mark.timeout(SECONDS + 60)
def test_the_charge_is_never_below_what_is_pinned(sizes: Path) -> None:
    seed = Random().randrange(1 << 31)
    command = [str(sizes), str(CASES), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-4000:]}"
    words = done.stdout.split()
    said = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    # Enough was allocated for the charges to be able to go wrong, and the limit was near.
    assert said["granted"] > CASES / 10
    assert said["pinned"] > 60 << 10


def test_a_fixed_address_is_refused_only_in_the_cards_own_memory(script: CoreScript, runner: Path) -> None:
    """18 such calls under 1 GiB were charged 1,152 KiB and pinned 73,728 MiB."""
    wire = script.wire
    script.refused(0, wire.memory(ROOT, CARD, 1, 1, flags=FIXED | FORCED), NOT_SUPPORTED)
    script.refused(0, wire.memory(ROOT, CARD, 1, 1, flags=FIXED, short=True), NOT_SUPPORTED, wrapped=True)
    for ranged in (False, True):
        script.refused(0, wire.heap(ROOT, CARD, 1, 1, flags=FIXED, ranged=ranged), NOT_SUPPORTED)
        script.forwarded(0, wire.heap(ROOT, CARD, 0, 1 << 40, flags=FIXED | 1 << 19, ranged=ranged), handle=9)
    run_script(script, runner)


def test_room_for_the_whole_page_is_reserved_before_the_driver_is_asked(script: CoreScript, runner: Path) -> None:
    """One byte in a page of 512 MiB: the ninth of 4301 MiB has no room, however many threads are with the driver."""
    wire = script.wire
    calls = [
        wire.memory(ROOT, CARD, 0, 1, attributes=HUGE, attributes2=OF_512_MIB),
        wire.heap(ROOT, CARD, 0, 1, attributes=HUGE, attributes2=OF_512_MIB),
        wire.heap(ROOT, CARD, 0, 1, attributes=HUGE, attributes2=OF_512_MIB, ranged=True),
    ]
    for number in range(8):
        script.forwarded(0, calls[number % 3], handle=number + 1, size=512 * MIB)
    for call in calls:
        script.refused(0, call, 0x51)
    run_script(script, runner)
