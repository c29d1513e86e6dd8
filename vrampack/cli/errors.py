"""The errors that end a command, and how it reports one: every line on stderr, prefixed with the program's name."""

from __future__ import annotations

import sys


class MisuseError(Exception):
    """The arguments contradict each other or name nothing that could exist."""


class MissingObjectError(Exception):
    """The cluster does not have the object that the arguments name, or has it in a form that cannot be read."""


def report_error(text: str, exit_code: int) -> int:
    """Write the error to stderr; returns `exit_code`."""
    sys.stderr.write("".join(f"vrampack: {line}\n" for line in text.splitlines()))
    return exit_code
