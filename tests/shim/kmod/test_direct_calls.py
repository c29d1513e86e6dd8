"""How the module calls the driver's functions that it has probes on: directly, which a processor with IBT lets through anywhere.

No emulator enforces IBT, so the code in memory is looked at. `6.12` is built for it, with an ENDBR or what is left of one at each entry.
"""

from __future__ import annotations

import errno
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.machine.machine import VirtualMachine
from tests.shim.kmod.world import KmodWorld, fails_with

CALLS = {
    "rm_ioctl": "checked_ioctl",
    "nv_get_file_private": "checked_file",
    "nvUvmInterfaceDupMemory": "dup_for_managed",
    "nvUvmInterfaceFreeDupedHandle": "free_held",
}
"""A function of the driver's, and that of ours which runs in its place."""
ENDBR_BYTES = 4


@pytest.mark.parametrize("kernel", ["6.12"], indirect=True)
def test_the_driver_is_called_directly(empty: KmodWorld, tmp_path: Path) -> None:
    empty.load_driver()
    empty.load_uvm()
    empty.load_shim()
    empty.limited("a", {0: 4301})
    driver, ours = (_functions(empty.machine, module) for module in ("nvidia", "vrampack"))
    for called, caller in CALLS.items():
        entry = driver[called].start
        targets = _direct_calls(_code(empty.machine, ours[caller]), ours[caller].start, tmp_path)
        assert targets & {entry, entry + ENDBR_BYTES}, f"{caller} calls {called} through a pointer"


def _functions(machine: VirtualMachine, module: str) -> dict[str, range]:
    """Each ends where the next begins."""
    rows = re.findall(rf"^(\w+) [tT] (\w+)\t\[{module}\]$", machine.read("/proc/kallsyms"), re.MULTILINE)
    found = sorted((int(address, 16), name) for address, name in rows)
    return {name: range(start, end) for (start, name), (end, _) in pairwise(found)}


def _code(machine: VirtualMachine, function: range) -> bytes:
    with fails_with(errno.ECANCELED):
        machine.insmod("/lib/textdump.ko", f"at={function.start}", f"size={len(function)}")
    lines = dict(re.findall(r"textdump ([0-9a-f]+) ([0-9a-f]+)$", machine.log(), re.MULTILINE))
    return b"".join(bytes.fromhex(text) for at, text in lines.items() if int(at, 16) in function)


def _direct_calls(code: bytes, start: int, folder: Path) -> set[int]:
    (folder / "code").write_bytes(code)
    command = ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", f"--adjust-vma={start:#x}", str(folder / "code")]
    listing = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    return {int(target, 16) for target in re.findall(r"\scall\s+(0x[0-9a-f]+)$", listing, re.MULTILINE)}
