"""What of a machine may change the result of a suite. Nothing here names one."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

EMULATOR_FLAGS = frozenset(
    (
        "cx16",
        "popcnt",
        "abm",
        "movbe",
        "bmi1",
        "bmi2",
        "avx",
        "avx2",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512_vbmi2",
    )
)
"""With each of these QEMU's emulator writes other machine code (tcg/i386 of QEMU 7.2)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Its kinds of things, by which one machine can stand for another."""

    kernel: str
    """`6.12`: patches of one release are of one kind."""
    system: str
    """`x86_64/debian-12/python-3.11`: what decides which packages `.ci/packages` installs."""
    cpu_flags: str
    """Those of `EMULATOR_FLAGS`, joined by commas; `none`."""
    cores: int

    @classmethod
    def read(cls) -> Machine:
        """The machine that runs Python."""
        major, minor, *_ = platform.release().split(".")
        release = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)', Path("/etc/os-release").read_text(), re.MULTILINE))
        system = f"{release.get('ID', 'linux')}-{release.get('VERSION_ID', 'rolling')}"
        python = f"python-{sys.version_info.major}.{sys.version_info.minor}"
        return cls(
            kernel=f"{major}.{minor}",
            system=f"{platform.machine()}/{system}/{python}",
            cpu_flags=",".join(sorted(EMULATOR_FLAGS & _read_cpu_flags())) or "none",
            cores=len(os.sched_getaffinity(0)),
        )


def _read_cpu_flags() -> set[str]:
    found = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return set(found[1].split()) if found else set()
