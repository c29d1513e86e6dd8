"""The last rejection of each request shape, as bytes: pods that fit nowhere come back with nearly every event.

A node without room stays without room until some node gains some. So a rejection holds for the same set of names, in any
order, until the ledger's capacity generation rises. The reason given for a name may be older than the node's last change,
but never of another kind: whether a pod could fit after an eviction depends only on the cards that nodes have, and when
those change the ledger's cards generation rises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from extender.scheduling.segmented_cache import SegmentedCache
from policies.engine.engine import VerdictKey
from vrampack.cards.reasons import UnfitReason

MAX_CACHED_BYTES = 24 * 1024 * 1024
"""16 rejections by 8,000 nodes: few shapes fit nowhere at the same time."""
BYTES_PER_NAME = 128
"""A name of 30 letters and its place in a set."""


class RejectionGeneration(NamedTuple):
    """The ledger's generations when the rejection was made."""

    capacity: int
    cards: int


@dataclass(frozen=True, slots=True)
class CachedRejection:
    """An answer in which no node passes."""

    names: frozenset[str]
    generation: RejectionGeneration
    body: bytes
    reasons: Mapping[str, int]
    """How many names have each reason."""
    nearest_reason: UnfitReason
    """That of the node that passes most checks."""

    @property
    def size_bytes(self) -> int:
        return len(self.body) + BYTES_PER_NAME * len(self.names)

    def matches_call(self, names: Sequence[str], generation: RejectionGeneration) -> bool:
        """Whether it is the answer for these names now.

        A scheduler names no node twice, so equally many names that are all in `self.names` are the same set. Building a
        set of them first would cost a fifth of the whole answer.
        """
        is_current = generation == self.generation
        return is_current and len(names) == len(self.names) and self.names.issuperset(names)


class RejectionCache:
    """For pods whose verdict key (`Engine.find_verdict_key`) says that they get the same verdict on every node."""

    def __init__(self) -> None:
        self._rejections: SegmentedCache[VerdictKey, CachedRejection] = SegmentedCache(
            MAX_CACHED_BYTES, lambda rejection: rejection.size_bytes
        )

    def __len__(self) -> int:
        return len(self._rejections)

    def forget_all(self) -> None:
        self._rejections.clear()

    def find_rejection(
        self, key: VerdictKey, names: Sequence[str], generation: RejectionGeneration
    ) -> CachedRejection | None:
        """The ready answer for these names, if there is one."""
        rejection = self._rejections.get_entry(key)
        if rejection is None or not rejection.matches_call(names, generation):
            return None
        return rejection

    def put_rejection(self, key: VerdictKey, rejection: CachedRejection) -> None:
        self._rejections.put_entry(key, rejection)
