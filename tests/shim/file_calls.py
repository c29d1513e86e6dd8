"""Which C file uses another: it includes the other's header, or calls what the other defines."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def find_circle(objects: Sequence[Path]) -> set[str]:
    """The files in a cycle of calls, or between cycles; empty where they form layers."""
    needs = {each.stem: _names(each, "--undefined-only") for each in objects}
    defined = {name: each.stem for each in objects for name in _names(each, "--defined-only")}
    return _strip_layers({file: {defined[name] for name in names & defined.keys()} for file, names in needs.items()})


def find_include_circle(folder: Path) -> set[str]:
    """The same by includes, where a file and its header are one: a structure or an inline function makes no symbol."""
    names = {each.stem for each in folder.glob("*.c")}
    included: dict[str, set[str]] = {name: set() for name in names}
    for path in (*folder.glob("*.c"), *folder.glob("*.h")):
        if path.stem in names:
            headers = re.findall(r'^#include "(\w+)\.h"$', path.read_text(), re.MULTILINE)
            included[path.stem] |= names.intersection(headers) - {path.stem}
    return _strip_layers(included)


def _strip_layers(used: Mapping[str, set[str]]) -> set[str]:
    left = dict(used)
    while lowest := {file for file, others in left.items() if not others & left.keys()}:
        left = {file: others for file, others in left.items() if file not in lowest}
    return set(left)


def _names(file: Path, which: str) -> set[str]:
    command = ["nm", "--extern-only", which, str(file)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    return {line.split()[-1] for line in lines.splitlines()}
