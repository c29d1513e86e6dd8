"""Which calls could allocate memory: those that the core does not charge allocate none, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.core.script import ONLY_CARD, CoreScript
from tests.shim.core.steps import CARD, LIMIT, ROOT, run_script
from tests.shim.core.wire import MEMORY, MIB, NOT_SUPPORTED


def test_other_ways_to_take_memory_are_refused(script: CoreScript, runner: Path) -> None:
    wire = script.wire
    for kind in (0xC2, 0x82, 0x83, 0x42, 0xB1, 0xDA, 0xE0, 0xF3, 0x90CD):
        script.refused(0, wire.alloc(ROOT, CARD, 1, kind), NOT_SUPPORTED)
        script.refused(0, wire.window(kind), NOT_SUPPORTED)
        script.refused(0, wire.context(kind), NOT_SUPPORTED)
    script.refused(0, wire.window(MEMORY), NOT_SUPPORTED)
    script.refused(0, wire.context(MEMORY), NOT_SUPPORTED)
    script.refused(0, wire.context(MEMORY), NOT_SUPPORTED, wrapped=True)
    script.refused(0, wire.heap(ROOT, CARD, 0, MIB, attributes2=1 << 24), NOT_SUPPORTED, say="EGM")
    script.refused(0, wire.heap(ROOT, CARD, 0, MIB, attributes2=1 << 24, ranged=True), NOT_SUPPORTED, say="EGM")
    run_script(script, runner)


def test_calls_with_serialized_parameters_are_refused(script: CoreScript, runner: Path) -> None:
    call = script.wire.memory(ROOT, CARD, 1, MIB)
    if script.wire.long_flags:
        call.fields[script.wire.long_flags] = ("I", 1)
        script.refused(0, call, NOT_SUPPORTED)
    run_script(script, runner)


SEEN_ON_A_GPU = (
    0x3E, 0x79, 0xDE, 0x2081, 0x503C, 0x50A0, 0x83DE, 0x9067, 0x90E6, 0x90F1, 0xC661, 0xC8B5, 0xCB33, 0xCBC0,  # CUDA
    0x73, 0x208F, 0xC639, 0xC640,  # nvidia-smi
)  # fmt: skip
"""What a CUDA program that makes a context, and nvidia-smi, allocate on an H200 with 580.159.04. cuInit fails without 0xDE."""


def test_what_cuda_and_nvidia_smi_allocate_on_a_gpu_passes(script: CoreScript, runner: Path) -> None:
    for kind in SEEN_ON_A_GPU:
        script.forwarded(0, script.wire.alloc(ROOT, CARD, 1, kind), handle=1)
    run_script(script, runner)


def test_calls_that_take_no_video_memory_pass(script: CoreScript, runner: Path) -> None:
    wire = script.wire
    for kind in (0x3E, 0x50A0, 0x70, 0x71, 0xF8, 0xFD, 0x90F1):
        script.forwarded(0, wire.alloc(ROOT, CARD, 1, kind), handle=1)
        script.forwarded(0, wire.window(kind))
    script.forwarded(0, wire.context(0x02))
    # Virtual wins over everything; locations 1 (system memory) and 3 (any) are not the card's.
    for ranged in (False, True):
        script.forwarded(0, wire.heap(ROOT, CARD, 1, 9 * LIMIT, flags=1 << 19, ranged=ranged), handle=1)
        script.forwarded(0, wire.heap(ROOT, CARD, 1, 9 * LIMIT, attributes=1 << 25, ranged=ranged), handle=1)
        script.forwarded(0, wire.heap(ROOT, CARD, 1, 9 * LIMIT, attributes=3 << 25, ranged=ranged), handle=1)
    script.kept(2, 0)
    run_script(script, runner)


HEAP_FUNCTIONS_THAT_MAKE_NOTHING = {
    "REACQUIRE_COMPR": 15,
    "RELEASE_COMPR": 16,
    "GET_MEM_ALIGNMENT": 18,
    "HW_FREE": 20,
    "ALLOC_OS_DESCRIPTOR": 27,  # the caller's own pages
}


@pytest.mark.parametrize("function", HEAP_FUNCTIONS_THAT_MAKE_NOTHING.values(), ids=HEAP_FUNCTIONS_THAT_MAKE_NOTHING)
def test_heap_functions_without_video_memory_pass(script: CoreScript, runner: Path, function: int) -> None:
    script.forwarded(0, script.wire.heap_function(ROOT, CARD, function))
    script.forwarded(0, script.wire.heap_function(ROOT, CARD, function), wrapped=True)
    script.kept(2, 0)
    run_script(script, runner)


def test_all_other_heap_functions_are_refused(script: CoreScript, runner: Path) -> None:
    """1, 6 and 19 allocate memory whose size is elsewhere; a number of a future driver may allocate some too."""
    understood = {2, 3, 5, 14}
    for function in sorted({*range(64), 99, 0xFFFFFFFF} - understood - {*HEAP_FUNCTIONS_THAT_MAKE_NOTHING.values()}):
        script.refused(0, script.wire.heap_function(ROOT, CARD, function), NOT_SUPPORTED, say=f"function {function}")
    script.refused(0, script.wire.heap_function(ROOT, CARD, 1), NOT_SUPPORTED, wrapped=True)
    script.counted(0, ONLY_CARD, 0, 0, 0)
    run_script(script, runner)
