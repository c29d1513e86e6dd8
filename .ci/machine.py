"""What must be equal for a result of one machine to count on another. Nothing here names a machine."""

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
    """The kind of machine that suites run on."""

    kernel: str
    """`6.12`: patches of one release are of one kind."""
    system: str
    """`x86_64/debian-12/python-3.11/cgroup-2`: what decides which packages `.ci/packages` installs, and which tests can run."""
    cpu_flags: str
    """Those of `EMULATOR_FLAGS`, joined by commas; `none`."""
    cores: int

    @classmethod
    def read(cls) -> Machine:
        """The machine that runs Python."""
        major, minor, *_ = platform.release().split(".")
        release = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)', Path("/etc/os-release").read_text(), re.MULTILINE))
        parts = [
            platform.machine(),
            f"{release.get('ID', 'linux')}-{release.get('VERSION_ID', 'rolling')}",
            f"python-{sys.version_info.major}.{sys.version_info.minor}",
            f"cgroup-{2 if Path('/sys/fs/cgroup/cgroup.controllers').exists() else 1}",
        ]
        return cls(
            kernel=f"{major}.{minor}",
            system="/".join(parts),
            cpu_flags=",".join(sorted(EMULATOR_FLAGS & _read_cpu_flags())) or "none",
            cores=len(os.sched_getaffinity(0)),
        )


def _read_cpu_flags() -> set[str]:
    found = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return set(found[1].split()) if found else set()
