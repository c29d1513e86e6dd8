"""Who is served next: the pods take turns, and so do the items of each pod. No clock, no socket."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class FairQueue(Generic[ItemT]):
    """Items by pod. However many items one pod has, every other pod is served one of its own meanwhile."""

    def __init__(self) -> None:
        self._items: dict[str, deque[ItemT]] = {}
        self._turns: deque[str] = deque()
        """Pods that have items and are not paused, in the order in which they are served."""
        self._paused: set[str] = set()

    def push(self, pod: str, item: ItemT) -> None:
        if pod not in self._items:
            self._items[pod] = deque()
            if pod not in self._paused:
                self._turns.append(pod)
        self._items[pod].append(item)

    def pop(self) -> tuple[str, ItemT] | None:
        """The next item and its pod; None when there is none but of paused pods."""
        if not self._turns:
            return None
        pod = self._turns.popleft()
        items = self._items[pod]
        item = items.popleft()
        if items:
            self._turns.append(pod)
        else:
            del self._items[pod]
        return pod, item

    def pause(self, pod: str) -> None:
        """Keep its items, also those that are pushed from now on, until `resume`."""
        self._paused.add(pod)
        if pod in self._turns:
            self._turns.remove(pod)

    def resume(self, pod: str) -> None:
        self._paused.discard(pod)
        if pod in self._items and pod not in self._turns:
            self._turns.append(pod)

    def is_paused(self, pod: str) -> bool:
        return pod in self._paused

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to serve now."""
        return not self._turns
