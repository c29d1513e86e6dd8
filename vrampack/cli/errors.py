"""The errors that end a command, and how it reports one: every line on stderr, prefixed with the program's name."""

from __future__ import annotations

import sys


class MisuseError(Exception):
    """The arguments contradict each other or name nothing that could exist."""


class MissingObjectError(Exception):
    """The cluster does not have the object that the arguments name, or has it in a form that cannot be read."""


def describe_error(error: Exception) -> str:
    """The error's text; of one of the operating system the file and the reason, without its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def report_error(text: str, exit_code: int) -> int:
    """Write the error to stderr; returns `exit_code`."""
    sys.stderr.write("".join(f"vrampack: {line}\n" for line in text.splitlines()))
    return exit_code
