"""Asks `probe`, the hook's reading parts under sanitizers, about many texts in one process."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path


def run_probe(built: Path, part: str, texts: Sequence[bytes]) -> list[str]:
    """One answer per text. A sanitizer's complaint is a failure with its report."""
    rows = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    done = subprocess.run([built / "probe", part], input=rows, capture_output=True, timeout=100, check=False)
    complaints = [line for line in done.stderr.decode(errors="replace").splitlines() if "vrampack-hook:" not in line]
    assert done.returncode == 0, "\n".join(complaints)
    answers = done.stdout.decode("utf-8", "surrogateescape").split("\n")[:-1]
    assert len(answers) == len(texts)
    return answers
