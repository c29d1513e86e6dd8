"""How a command reports an error: every line on stderr, prefixed with the program's name."""

from __future__ import annotations

import sys


def report_error(text: str, exit_code: int) -> int:
    """Write the error to stderr; returns `exit_code`."""
    sys.stderr.write("".join(f"vrampack: {line}\n" for line in text.splitlines()))
    return exit_code
