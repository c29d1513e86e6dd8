"""What can go wrong between the library, the agent and its file."""

from __future__ import annotations


class LibraryProtocolError(ValueError):
    """A message that is none of the protocol's. It is ignored and its connection is closed."""

    def __init__(self, text: str, *, sequence: int = 0) -> None:
        super().__init__(text)
        self.sequence = sequence
        """What the answer carries back, as far as it could be read."""


class JournalLockedError(Exception):
    """Another agent of this node still writes the file."""
