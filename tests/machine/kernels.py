"""The kernels that the module is shown on: three of Debian's, and one made of its sources that looks for mistakes.

    python -m tests.machine.kernels      fetches and builds what is not there yet, and says where it is

They are kept in ~/.cache/vrampack/kernels.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.machine import debug, stock

NAMES = (*stock.NAMES, debug.NAME)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One that a machine can run, and that modules can be built for."""

    name: str
    """`6.1`, `6.1-debug`."""
    release: str
    """What uname says: `6.1.0-56-cloud-amd64`."""
    vmlinuz: Path
    build: Path
    """The folder for `make -C`."""


def prepare_kernel(name: str) -> Kernel:
    """One of `NAMES`: fetched or built if it is not there, which takes half a minute or four."""
    if name == debug.NAME:
        folder = debug.folder()
        return Kernel(name, (folder / "release").read_text(), folder / "vmlinuz", folder / "build")
    folder = stock.folder() / name
    vmlinuz = next((folder / "boot").glob("vmlinuz-*"))
    release = vmlinuz.name.removeprefix("vmlinuz-")
    return Kernel(name, release, vmlinuz, folder / "usr" / "src" / f"linux-headers-{release}")


if __name__ == "__main__":
    for each in map(prepare_kernel, NAMES):
        sys.stdout.write(f"{each.name:<9}  {each.release:<28}  {each.build}\n")
