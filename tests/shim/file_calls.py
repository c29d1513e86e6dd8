"""Which object file uses what another defines, read from their symbols."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def circle(objects: Sequence[Path]) -> set[str]:
    """The files in a cycle of calls, or between cycles; empty where they form layers."""
    needs = {each.stem: _names(each, "--undefined-only") for each in objects}
    defined = {name: each.stem for each in objects for name in _names(each, "--defined-only")}
    calls = {file: {defined[name] for name in names & defined.keys()} for file, names in needs.items()}
    while lowest := {file for file, called in calls.items() if not called & calls.keys()}:
        calls = {file: called for file, called in calls.items() if file not in lowest}
    return set(calls)


def _names(file: Path, which: str) -> set[str]:
    command = ["nm", "--extern-only", which, str(file)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    return {line.split()[-1] for line in lines.splitlines()}
