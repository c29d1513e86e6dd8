"""The pods that filter refused and that do not say so yet.

What a pod has been told stands on the pod, so nothing is remembered of the thousands that come back with every event: such a
call costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import compress
from typing import NewType

from cachetools import LRUCache

from vrampack.cards.reasons import UnfitReason

MAX_PODS = 8192
MAX_SHARED_SETS = 16
"""Calls that name the same nodes again, which a set finds faster than a number."""
MAX_NODES = 65_536
"""That were ever named: more than a cluster has, since nodes come and go."""

PackedNames = NewType("PackedNames", int)
"""A bit for each node: 5,000 nodes take 700 bytes, and a set of their names 300,000. So every pod has its own."""

_DIGITS = bytes.maketrans(b"\0\1", b"01")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last call of filter that let no node pass for one pod."""

    packed_names: PackedNames
    """The nodes that its scheduler asked about."""
    node_selector: str
    refused_since: float
    """When filter first refused the pod and has let no node pass since."""


class UntoldPods:
    """By uid. A pod that finds no room here is noted at its next refusal."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._refusals: dict[str, Refusal] = {}
        self._node_names = NodeNumbers()

    def __len__(self) -> int:
        return len(self._refusals)

    def note_refusal(
        self, uid: str, told_reason: str, reason: UnfitReason, names: Collection[str], node_selector: str
    ) -> None:
        """Filter refused the pod, which says that it was refused for `told_reason`."""
        if told_reason == reason.condition_reason:
            if self._refusals:
                self._refusals.pop(uid, None)
            return
        known = self._refusals.get(uid)
        if known is None and len(self._refusals) >= MAX_PODS:
            return
        if self._node_names.is_full:
            self._refusals.clear()
            self._node_names = NodeNumbers()
        packed = self._node_names.pack(names)
        if known is not None and known.packed_names is packed:
            return  # the usual case: an answer of the rejection cache, again
        since = self._clock() if known is None else known.refused_since
        self._refusals[uid] = Refusal(packed, node_selector, since)

    def forget_pod(self, uid: str) -> None:
        """It was told, or a node passed for it."""
        if self._refusals:
            self._refusals.pop(uid, None)

    def list_uids(self) -> list[str]:
        return list(self._refusals)

    def get_refusal(self, uid: str) -> Refusal | None:
        return self._refusals.get(uid)

    def list_names(self, refusal: Refusal) -> frozenset[str]:
        return self._node_names.unpack(refusal.packed_names)


class NodeNumbers:
    """A number for each name that was ever given."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        """In the order of their numbers."""
        self._packed: LRUCache[frozenset[str], PackedNames] = LRUCache(MAX_SHARED_SETS)

    @property
    def is_full(self) -> bool:
        return len(self._names) > MAX_NODES

    def pack(self, names: Collection[str]) -> PackedNames:
        """The same object for the same names, if they were among the last."""
        names = names if isinstance(names, frozenset) else frozenset(names)
        packed = self._packed.get(names)
        if packed is None:
            bits = bytes(map(names.__contains__, self._names))
            if bits.count(1) < len(names):
                self._names.update(dict.fromkeys(names))
                bits = bytes(map(names.__contains__, self._names))
            digits = bits[::-1].translate(_DIGITS)
            packed = self._packed[names] = PackedNames(int(digits or b"0", 2))
        return packed

    def unpack(self, packed: PackedNames) -> frozenset[str]:
        digits = reversed(format(packed, "b"))
        return frozenset(compress(self._names, map(int, digits)))
