"""A process's memory according to the kernel."""

from __future__ import annotations

from pathlib import Path


def read_process_memory_mb(pid: int, field: str) -> float:
    """`VmRSS` or `VmHWM` of the process, in millions of bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(kib) * 1024 / 1e6
