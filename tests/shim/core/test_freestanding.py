"""One source for a library without libc and for the kernel: what it must not need, and must not do."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.shim.core.building import CORE
from tests.shim.file_calls import find_circle

KERNEL = [
    "-std=gnu11",
    "-O2",
    "-D__KERNEL__",
    "-ffreestanding",
    "-nostdinc",
    "-mgeneral-regs-only",
    "-mcmodel=kernel",
    "-fno-pic",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wvla",
    "-Wframe-larger-than=1024",
]
"""As the kernel compiles: without floating point, arrays of variable length, or much of a stack."""
TYPES = """
typedef _Bool bool;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef unsigned long uintptr_t;
typedef __SIZE_TYPE__ size_t;
"""
STDDEF = """
#define NULL ((void *)0)
enum { false, true };
"""


def test_the_core_needs_no_external_symbol(folder: Path) -> None:
    """Memcpy and memset are what a compiler may call for itself."""
    subprocess.run(["make", "--silent", "-C", str(CORE), "core", f"OUT={folder}"], check=True, timeout=100)
    wanted = subprocess.run(
        ["nm", "--undefined-only", str(folder / "core.o")], capture_output=True, text=True, check=True
    )
    assert {line.split()[-1] for line in wanted.stdout.splitlines()} <= {"memcpy", "memset"}


def test_no_calls_form_a_circle(tmp_path: Path) -> None:
    subprocess.run(["make", "--silent", "-C", str(CORE), "core", f"OUT={tmp_path}"], check=True, timeout=100)
    parts = sorted((tmp_path / "core").glob("*.o"))
    assert len(parts) == len(list(CORE.glob("*.c")))
    assert find_circle(parts) == set()


@pytest.mark.parametrize("source", sorted(CORE.glob("*.c")), ids=lambda source: source.name)
def test_the_core_compiles_with_kernel_flags(tmp_path: Path, source: Path) -> None:
    (tmp_path / "linux").mkdir()
    (tmp_path / "linux" / "types.h").write_text(TYPES)
    (tmp_path / "linux" / "stddef.h").write_text(STDDEF)
    command = ["gcc", *KERNEL, f"-I{tmp_path}", "-c", str(source), "-o", str(tmp_path / "part.o")]
    subprocess.run(command, check=True, timeout=100)


def test_no_function_is_recursive(folder: Path) -> None:
    """Read from the calls in the objects, compiled without inlining."""
    calls: dict[str, set[str]] = defaultdict(set)
    for source in CORE.glob("*.c"):
        part = folder / f"plain-{source.stem}.o"
        command = ["gcc", "-std=c11", "-O0", "-ffunction-sections", "-c", str(source), "-o", str(part)]
        subprocess.run(command, check=True, timeout=100)
        lines = subprocess.run(["objdump", "-dr", str(part)], capture_output=True, text=True, check=True).stdout
        name = ""
        for line in lines.splitlines():
            if start := re.fullmatch(r"[0-9a-f]+ <(\w+)>:", line):
                name = start[1]
            elif (call := re.search(r"R_X86_64_PLT32\s+(?:\.text\.)?(\w+)", line)) or (
                call := re.search(r"\bcall\s+[0-9a-f]+ <(\w+)>", line)
            ):
                calls[name].add(call[1])
    assert "call_drop" in calls["call_drop_all"]
    while leaves := {name for name in calls if not calls[name] & calls.keys()}:
        calls = {name: called for name, called in calls.items() if name not in leaves}
    assert not calls
