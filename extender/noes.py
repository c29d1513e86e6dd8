"""The last "no" of each request shape, as bytes: pods that fit nowhere come back with nearly every event.

A node without room stays without room until some node gains some. So a "no" holds for the same set of names, in
whatever order they come, until the ledger's room generation rises; which reason each name had may be older than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from vrampack.cards.request import Request

SHAPES_KEPT = 16
"""Names and bytes of one are 3 MB with 15,000 nodes, and few sizes at a time fit nowhere."""


@dataclass(frozen=True, slots=True)
class No:
    """An answer by which no name passes."""

    names: frozenset[str]
    room_generation: int
    body: bytes
    reasons: Mapping[str, int]
    """How many names have each reason."""

    def answers(self, names: Sequence[str], room_generation: int) -> bool:
        """Whether it is the answer for these names now.

        A scheduler names no node twice, so as many names as these that are all among these are these. Making a set of
        them first would cost a fifth of the whole answer.
        """
        is_current = room_generation == self.room_generation
        return is_current and len(names) == len(self.names) and self.names.issuperset(names)


class Noes:
    """By request shape, of the pods to which every node is what it is to others."""

    def __init__(self) -> None:
        self._noes: LRUCache[Request, No] = LRUCache(maxsize=SHAPES_KEPT)

    def find(self, request: Request, names: Sequence[str], room_generation: int) -> No | None:
        """The ready answer for these names, if there is one."""
        no = self._noes.get(request)
        return no if no is not None and no.answers(names, room_generation) else None

    def keep(self, request: Request, no: No) -> None:
        self._noes[request] = no
