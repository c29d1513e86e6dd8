"""Bounds the bytes of bodies that one listener holds: 512 connections must not fill the memory with 8 MiB each.

    a body grows --one byte too many of all--> the body that has been arriving for longest is refused, until all fit

A scheduler sends a body in a millisecond, so the body that has been arriving for longest is one whose sender stopped halfway: a
flood of those cannot keep other calls out. A body counts until it is answered; one that has arrived whole is never refused.
"""

from __future__ import annotations

from typing import Protocol


class RefusableBody(Protocol):
    """A connection on which a body arrives."""

    def refuse_body(self) -> None:
        """Drop the whole body. The budget has uncharged it already."""


class BodyBudget:
    """The bodies of one listener, in the order in which they began to arrive."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[RefusableBody, int] = {}
        self._arriving: dict[RefusableBody, None] = {}
        self._total = 0

    @property
    def held_bytes(self) -> int:
        return self._total

    def charge_bytes(self, body: RefusableBody, count: int) -> None:
        """Charge bytes that have arrived. If other bodies cannot make room for them, this one is refused."""
        self._held[body] = self._held.get(body, 0) + count
        self._arriving.setdefault(body)
        self._total += count
        while self._total > self._max_bytes and self._arriving:
            oldest = next(iter(self._arriving))
            self.uncharge_body(oldest)
            oldest.refuse_body()

    def note_complete(self, body: RefusableBody) -> None:
        """All of it has arrived, and its answer is awaited."""
        self._arriving.pop(body, None)

    def uncharge_body(self, body: RefusableBody) -> None:
        """It is answered, or its connection is gone. A second call changes nothing."""
        self._arriving.pop(body, None)
        self._total -= self._held.pop(body, 0)
