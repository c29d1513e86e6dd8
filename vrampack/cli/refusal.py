"""How a command says no: every line on stderr, under the name of the program."""

from __future__ import annotations

import sys


def refuse(text: str, code: int) -> int:
    """Say why not; returns `code`."""
    sys.stderr.write("".join(f"vrampack: {line}\n" for line in text.splitlines()))
    return code
