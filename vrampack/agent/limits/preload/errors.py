"""Errors of the library's protocol and of the journal."""

from __future__ import annotations


class LibraryProtocolError(ValueError):
    """A message that violates the protocol. It is ignored and its connection is closed."""

    def __init__(self, text: str, *, sequence: int = 0) -> None:
        super().__init__(text)
        self.sequence = sequence
        """The number that the answer must repeat, if it could be read."""


class JournalLockedError(Exception):
    """Another agent of this node still writes the file."""
