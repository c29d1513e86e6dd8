"""What a scheduler asked an extender and what it was answered: one JSON line per verb call.

    {"t": 1790000000.1, "verb": "bind", "request": {...}, "status": 200, "answer": {...}, "error": null}

`error` says why the scheduler got no answer; `status` and `answer` are then null. A line is written before the answer is
passed on, so a test that saw the answer finds the line.
"""

import json
import time
from collections.abc import Iterable
from pathlib import Path

from tests.fakes.http1 import BrokenMessageError, HttpHead, content


class TranscribedCall:
    """One call in flight; its line is written once, by the first call of `heard` or `lost`."""

    def __init__(self, file: Path, target: str, body: bytes) -> None:
        self._file = file
        self._line = {"t": time.time(), "verb": target.partition("?")[0].rpartition("/")[2], "request": _json(body)}
        self._is_written = False

    def heard(self, status: int, head: HttpHead, pieces: Iterable[bytes]) -> None:
        """The scheduler is about to get this answer."""
        try:
            body = content(head, pieces)
        except (BrokenMessageError, OSError, EOFError) as error:
            self.lost(f"answer cannot be read: {error}")
            return
        self.answered(status, body)

    def answered(self, status: int, body: bytes) -> None:
        """The scheduler is about to get this answer, which was made here."""
        answer = _json(body)
        self._write(status, answer, "answer is not JSON" if answer is None and status == 200 else None)

    def lost(self, why: str) -> None:
        """The scheduler gets no answer."""
        self._write(None, None, why)

    def _write(self, status: int | None, answer: object, error: str | None) -> None:
        if self._is_written:
            return
        self._is_written = True
        with self._file.open("a") as file:
            file.write(json.dumps(self._line | {"status": status, "answer": answer, "error": error}) + "\n")


def _json(body: bytes) -> object:
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found
