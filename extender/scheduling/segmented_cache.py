"""A bounded cache in which entries that are used once do not push out entries that are used repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from cachetools import LRUCache

Key = TypeVar("Key")
Value = TypeVar("Value")

PROTECTED_SHARE = 0.8
"""The share of the whole size for protected entries; the rest is for entries on probation."""


class SegmentedCache(Generic[Key, Value]):
    """The least recently used entries go first, those on probation before the protected ones.

        put_entry --> probation --asked for again--> protected
                         |                              |
                         '-- room is needed there       '-- room is needed there --> gone

    A stream of pods that each ask for something else passes through probation and leaves the rest as it is. `get_size` is
    called once for each entry, in the unit of `max_size`; an entry that is larger than its part counts as the whole part.
    """

    def __init__(self, max_size: int, get_size: Callable[[Value], int]) -> None:
        protected_size = int(max_size * PROTECTED_SHARE)
        self._probation: LRUCache[Key, Value] = _build_lru(max_size - protected_size, get_size)
        self._protected: LRUCache[Key, Value] = _build_lru(protected_size, get_size)

    def __len__(self) -> int:
        return len(self._probation) + len(self._protected)

    def list_values(self) -> Iterator[Value]:
        yield from self._probation.values()
        yield from self._protected.values()

    @property
    def size(self) -> int:
        """The size of all entries together."""
        return int(self._probation.currsize + self._protected.currsize)

    def get_entry(self, key: Key) -> Value | None:
        value = self._protected.get(key)
        if value is None:
            value = self._probation.pop(key, None)
            if value is not None:
                self._protected[key] = value
        return value

    def peek_entry(self, key: Key) -> Value | None:
        """The entry, without moving it from probation."""
        value = self._protected.get(key)
        return self._probation.get(key) if value is None else value

    def put_entry(self, key: Key, value: Value) -> None:
        """Add or replace the entry."""
        if key in self._protected:
            self._protected[key] = value
        else:
            self._probation[key] = value

    def drop_entries(self, is_dropped: Callable[[Key], bool]) -> None:
        """Remove the entries with these keys."""
        for segment in (self._probation, self._protected):
            for key in [each for each in segment if is_dropped(each)]:
                del segment[key]

    def clear(self) -> None:
        self._probation.clear()
        self._protected.clear()


def _build_lru(max_size: int, get_size: Callable[[Value], int]) -> LRUCache[Key, Value]:
    return LRUCache(max_size, lambda value: min(get_size(value), max_size))
