"""The last rejection of each request shape, as bytes: pods that fit nowhere come back with nearly every event.

A node without room stays without room until some node gains some. So a rejection holds for the same set of names, in any
order, until the ledger's capacity generation rises; the reason given for a name may be older than the node's last change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from vrampack.cards.request import CardRequest

CACHED_REJECTIONS = 16
"""Names and bytes of one take 3 MB with 15,000 nodes, and few shapes at a time fit nowhere."""


@dataclass(frozen=True, slots=True)
class CachedRejection:
    """An answer by which no name passes."""

    names: frozenset[str]
    capacity_generation: int
    body: bytes
    reasons: Mapping[str, int]
    """How many names have each reason."""

    def matches_call(self, names: Sequence[str], capacity_generation: int) -> bool:
        """Whether it is the answer for these names now.

        A scheduler names no node twice, so as many names as these that are all among these are these. Making a set of
        them first would cost a fifth of the whole answer.
        """
        is_current = capacity_generation == self.capacity_generation
        return is_current and len(names) == len(self.names) and self.names.issuperset(names)


class RejectionCache:
    """By request shape, for pods that find every node as other pods do (see `Engine.can_share_verdicts`)."""

    def __init__(self) -> None:
        self._rejections: LRUCache[CardRequest, CachedRejection] = LRUCache(maxsize=CACHED_REJECTIONS)

    def find_rejection(
        self, request: CardRequest, names: Sequence[str], capacity_generation: int
    ) -> CachedRejection | None:
        """The ready answer for these names, if there is one."""
        rejection = self._rejections.get(request)
        if rejection is None or not rejection.matches_call(names, capacity_generation):
            return None
        return rejection

    def put_rejection(self, request: CardRequest, rejection: CachedRejection) -> None:
        self._rejections[request] = rejection
