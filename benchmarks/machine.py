"""The machine on which the figures were taken: they only compare with figures of the same machine."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

from vrampack.cli.version import VERSION

PACKAGES = ("fastapi", "uvicorn", "uvloop", "httptools", "msgspec", "kubernetes")


def describe_machine() -> dict[str, str]:
    """Processor, memory, kernel and versions."""
    processor = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return {
        "machine": f"{os.cpu_count()} x {processor[1] if processor else platform.machine()}",
        "memory": f"{int(memory[1]) / 2**20:.1f} GiB" if memory else "unknown",
        "system": f"{platform.system()} {platform.release()}",
        "versions": f"vrampack {VERSION}, Python {platform.python_version()}, {packages}",
    }


def format_load_average() -> str:
    """The load average of one, five and fifteen minutes, as other programs affect every figure."""
    return " ".join(f"{each:.2f}" for each in os.getloadavg())
