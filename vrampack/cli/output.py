"""Writing results to stdout, and how a command ends when it cannot write, is interrupted, or its reader is gone."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable

INTERRUPTED_EXIT_CODE = 130
"""The exit code that shells use for Ctrl-C: 128 plus the number of SIGINT."""


class OutputError(Exception):
    """Writing to stdout failed; the message says why."""


class ReaderGoneError(OutputError):
    """The reader of stdout has closed it, as `head` does."""


def write_output(text: str) -> None:
    """Write to stdout at once. Raises `OutputError`; later output is discarded."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # Otherwise the interpreter would report the rest of the buffer again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise ReaderGoneError("the reader of the output is gone") from error
        raise OutputError(f"cannot write the output: {error.strerror}") from error


def find_terminal_width() -> int | None:
    """How many characters a line of stdout may have, by `$COLUMNS` or the terminal; None: it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def run_command(command: Callable[[], int], *, prog: str) -> int:
    """Run a command to its exit code: 1 with one line when its output cannot be written, 130 after Ctrl-C."""
    try:
        try:
            return command()
        finally:
            write_output("")  # a help text may still be in the buffer
    except ReaderGoneError:
        return 0
    except OutputError as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
